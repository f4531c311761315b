/* bench.h - starts the two servers that `paramctl bench` compares: a daemon of its own, and a yardstick.
 *
 * The yardstick measures how fast bytes go over TCP on this machine if nothing else is done with them.
 *
 * A server process has a single thread (epoll, edge-triggered, non-blocking sockets) and C client connections on
 * loopback, with TCP_NODELAY and the kernel's buffer sizes. The measurement consists of rounds. In a round, every
 * client sends B bytes and receives B bytes at the same time. `chunk` is the most bytes of a write.
 *
 *   - The server reads the bytes of a connection in reads of 64 KiB, which is the fastest size. It reads them straight
 *     into B bytes of memory that belong to this connection, so C * B bytes in all.
 *   - The server sends B bytes from other memory of the connection (again C * B in all), in writes of up to `chunk`
 *     bytes. It begins to send when the first byte of the round arrives, so both directions run at full speed. Only the
 *     last 64 KiB are held back until all bytes have arrived. So when a round has ended for the client, all its bytes
 *     have arrived at the server.
 *   - A client (one thread each) sends from B bytes of memory and receives into B other bytes, on a non-blocking
 *     socket, in writes of up to `chunk` and reads of 64 KiB.
 *
 * All memory was written before the first round. There are no frames, headers, checksums, requests or sums. A server
 * that receives gradients and returns weights could reach this speed if all its own work cost nothing.
 * pd_yardstick_round is the client's side of a round.
 *
 * Its CPU time plus that of a pass over memory (pass.c) is the yardstick for a server's CPU time: such a server must at
 * least move the bytes, add the gradients, and take the step. */
#ifndef PD_BENCH_H
#define PD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "paramd/error.h"

/* A daemon that a program starts for itself and stops again (child.c). */
typedef struct pd_child {
    pid_t pid;
    int log;                    /* descriptor of an unnamed file with the daemon's output; -1: the daemon does not
                                 * run */
    char url[64];               /* address of its port on the loopback interface */
    char local[80];             /* address of its Unix socket */
    char secure[64], token[80]; /* secure: address of its port with TLS; token: path of the file with the token that
                                 * clients need there; both are "" if it has no TLS */
    char folder[64];            /* directory of the socket and the token */
} pd_child;

/* Starts the `paramd` in this program's folder, on a free port of the loopback interface and on a Unix socket in a new
 * folder, with its default configuration otherwise. Waits until the daemon listens. The daemon ends with its parent at
 * the latest. Forks, so it must be called before any thread is started. PD_UNAVAILABLE: there is no such program, or it
 * ended; the error has the last lines of its output. PD_DEADLINE_EXCEEDED: it does not listen within 20 seconds. */
int pd_child_start(pd_child *out, pd_error *err);
/* Works as pd_child_start. The daemon listens on TLS, too, with a new token. */
int pd_child_start_secure(pd_child *out, pd_error *err);
/* Ends the daemon by SIGTERM, and after 10 seconds by SIGKILL. Does nothing if it is not running. */
void pd_child_stop(pd_child *child);

/* The server process of the yardstick (yardstick.c). */
typedef struct pd_yardstick {
    pid_t pid;
    int port;
    int connections;
    size_t bytes, chunk; /* bytes: sent each way on a connection in a round; chunk: most bytes of a write */
} pd_yardstick;

/* Starts the server process for this number of connections. In a round, `bytes` go each way on each connection.
 * Forks, so it must be called before any thread is started. The process ends with its last connection, with
 * pd_yardstick_stop, or with its parent. PD_NO_MEMORY, PD_UNAVAILABLE. */
int pd_yardstick_start(pd_yardstick *out, int connections, size_t bytes, size_t chunk, pd_error *err);
void pd_yardstick_stop(pd_yardstick *yardstick);

/* Measures the arithmetic of a round, once on one thread: the mean of the workers' gradients, of `bytes` bytes each,
 * and a step of SGD with momentum, from and to memory. Returns its CPU seconds; 0: out of memory. */
double pd_pass_seconds(int workers, size_t bytes);

/* Connects to the server process. Returns the socket's descriptor, which the caller closes, or PD_UNAVAILABLE. */
int pd_yardstick_connect(const pd_yardstick *yardstick, pd_error *err);
/* Runs one round on a connection. Returns when all bytes of `out` have arrived at the server and `in` is filled.
 * PD_UNAVAILABLE: the connection broke. PD_DEADLINE_EXCEEDED: no byte moved for 30 seconds. */
int pd_yardstick_round(const pd_yardstick *yardstick, int fd, const void *out, void *in, pd_error *err);

#endif
