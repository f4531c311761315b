/* yardstick.h - how fast do the same bytes go over TCP on this machine, with nothing else to do?
 *
 * The measurement: a server process with a single thread (epoll, edge-triggered, non-blocking sockets) and C client
 * connections on loopback, TCP_NODELAY, buffer sizes left to the kernel. In a round every client sends B bytes and
 * receives B bytes at the same time:
 * - The server reads the bytes of a connection from the socket straight into memory of that connection (B bytes of it,
 *   so C * B in all), in reads of 64 KiB, which is the fastest size.
 * - The server sends B bytes from other memory of the connection (again C * B in all), in writes of up to `chunk`
 *   bytes. It begins with the first byte of the round that comes in and does not wait for more: both directions run at
 *   full speed. Only the last 64 KiB are held until all bytes have landed, so a round that has ended for the client has
 *   landed at the server.
 * - A client (one thread each) sends from B bytes and receives into B other bytes, non-blocking, in writes of up to
 *   `chunk` and reads of 64 KiB.
 * All memory was written before. There are no frames, headers, checksums, requests or sums: a server that lands
 * gradients and returns weights could reach this speed if all its own work were free. pd_yardstick_round is the
 * client's side of a round. */
#ifndef PD_YARDSTICK_H
#define PD_YARDSTICK_H

#include <stddef.h>
#include <sys/types.h>

#include "paramd/error.h"

typedef struct pd_yardstick {
    pid_t  pid;
    int    port;
    int    connections;
    size_t bytes, chunk;
} pd_yardstick;

/* Starts the server process for so many connections; `bytes` each way and connection in a round. Forks: call it before
 * any thread is started. The process ends with its last connection, with pd_yardstick_stop, or with its parent.
 * PD_NO_MEMORY, PD_UNAVAILABLE. */
int  pd_yardstick_start(pd_yardstick *out, int connections, size_t bytes, size_t chunk, pd_error *err);
void pd_yardstick_stop(pd_yardstick *yardstick);

/* Connects. Returns the socket's descriptor, which the caller closes, or PD_UNAVAILABLE. */
int  pd_yardstick_connect(const pd_yardstick *yardstick, pd_error *err);
/* Runs one round on a connection: returns when `out` (bytes of it) has landed and `in` is filled. PD_UNAVAILABLE: the
 * connection broke. PD_DEADLINE_EXCEEDED: nothing moved for 30 seconds. */
int  pd_yardstick_round(const pd_yardstick *yardstick, int fd, const void *out, void *in, pd_error *err);

#endif
