/* uvloop.h - the daemon's libuv loop: its timer, wake-ups and signals, its listening sockets, and the sockets of its
 * connections with their TLS handshakes. Loop thread.
 *
 * Only this header includes uv.h. Only daemon.c, handshake.c, listen.c and socket.c use it.
 *
 * **Handshakes.** A connection on a tls:// address is a handshake until its TLS handshake is complete. Handshakes are
 * bounded in time, memory and number. A peer that has sent nothing, or only a part of its first message, costs a small
 * struct: the kernel wakes the loop when the message is complete. The arithmetic runs on a thread of lower priority,
 * because a handshake may be late, but a step may not. A handshake that is not complete after server.handshake_timeout
 * is closed. There are at most server.max_connections handshakes, and only a few of them may have the state that TLS
 * keeps between two messages. Beyond these limits the oldest handshake is closed, because an honest peer needs only
 * milliseconds. */
#ifndef PD_UVLOOP_H
#define PD_UVLOOP_H

#include "conversation.h"
#include "paramd/error.h"
#include "mover.h"
#include "reach.h"
#include "tls_stream.h"
#include "transport.h"

#include <stdbool.h>
#include <uv.h>

/* Turns SIGTERM, SIGINT and SIGHUP into events of the loop. A process may have only one of these structs.
 *
 * This does not use libuv's uv_signal_t. When a uv_signal_t closes, libuv restores the signal's default action, so a
 * second SIGTERM would kill a process that is about to end. */
typedef struct pd_signals {
    uv_poll_t poll;
    int pipe[2]; /* the signal handler writes the number of each signal into it, and the loop reads them */
    bool open;
    void (*on_signal)(void *arg, int number);
    void *arg;
} pd_signals;

/* Opens the pipe from the signal handler to the loop. `out` must be zeroed memory. PD_UNAVAILABLE: the process has no
 * free file descriptors; nothing has changed. */
int pd_signals_open(pd_signals *out, uv_loop_t *loop, void (*on_signal)(void *arg, int number), void *arg,
                    pd_error *err);
/* Starts to call on_signal on the loop thread for each of the three signals. Does nothing if pd_signals_open has not
 * succeeded. */
void pd_signals_begin(pd_signals *signals);
/* Ignores the three signals for the rest of the process's life. Called before the loop's last turn. Does nothing if
 * pd_signals_open has not succeeded. */
void pd_signals_end(pd_signals *signals);

/* States of a handshake, each with a list of the handshakes in it. */
enum {
    PD_HANDSHAKE_SILENT,   /* the client's first message has not arrived completely */
    PD_HANDSHAKE_QUEUED,   /* a message has arrived, and waits for the thread that computes handshakes */
    PD_HANDSHAKE_COMPUTED, /* the thread that computes handshakes has this one as a task */
    PD_HANDSHAKE_ANSWERED, /* the server has answered, and waits for the client's next message */
    PD_HANDSHAKE_ENDING,   /* the handshake has failed, and the client gets a moment to read why */
    PD_HANDSHAKE_STATES
};

/* All handshakes of the daemon, by state. */
typedef struct pd_handshakes {
    struct pd_handshake *list[PD_HANDSHAKE_STATES]; /* in the order in which they entered the state; in
                                                     * PD_HANDSHAKE_QUEUED those whose client has answered come first */
    unsigned n[PD_HANDSHAKE_STATES];
    struct pd_handshake_thread *thread; /* the thread that computes; the first handshake starts it */
    unsigned dropped;                   /* number of dropped handshakes that no log line has reported yet */
    uint64_t logged_ms;                 /* time of the last log line about dropped handshakes */
    bool ended;
} pd_handshakes;

/* A listening socket. */
typedef struct pd_listener {
    struct pd_uvloop *loop;
    uv_poll_t poll;
    int fd;
    bool secure;    /* its connections speak TLS */
    bool http;      /* its connections speak HTTP, not paramd's protocol */
    char path[108]; /* path of a Unix socket that the daemon has made, and removes at the end; "": another socket */
} pd_listener;

/* The daemon's event loop, and what it watches. */
typedef struct pd_uvloop {
    pd_daemon *daemon;
    pd_movers *movers; /* while they run; NULL: there are none */
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_timer_t timer;
    pd_signals signals;
    uv_poll_t input;
    uv_poll_t engine; /* the sockets of the cluster's engine; `engine` and `engine_timer` exist if the daemon has a
                       * cluster */
    uv_timer_t engine_timer;
    bool watches_input; /* the daemon drains and stops when its standard input ends */
    pd_handshakes handshakes;
    pd_listener listener[2 * PD_MAX_LISTENERS];
    int n_listeners, spare_fd; /* spare_fd: file descriptor that is kept unused. When no other one is free, it is closed
                                * for a moment, to accept a connection and refuse it */
    bool paused;               /* no file descriptor is free, so no connections are accepted until the timer's next
                                * tick */
    bool loads;                /* jobs are being loaded: only HTTP connections are accepted */
    bool opens_http;           /* the listeners that are being opened now are for HTTP */
    unsigned port, http_port;  /* ports of the first TCP listener for workers and operators, and for HTTP; 0: there is
                                * none */
} pd_uvloop;

/* Opens the listening sockets that the settings name, or takes over those that the service manager has opened. Errors
 * are those of pd_daemon_listen. */
int pd_listen(pd_uvloop *loop, pd_error *err);
/* Opens the HTTP listeners that the settings name, if any, or takes over the service manager's sockets for HTTP. Errors
 * are those of pd_daemon_listen. */
int pd_listen_http(pd_uvloop *loop, pd_error *err);
/* Starts to accept connections: while jobs are loaded, only HTTP connections. Called again when they are loaded. */
void pd_listen_begin(pd_uvloop *loop);
/* Closes the listening sockets for workers and operators. HTTP listeners stay open, so that /readyz can report the
 * drain. */
void pd_listen_end_workers(pd_uvloop *loop);
/* Closes all listening sockets. */
void pd_listen_end(pd_uvloop *loop);

/* Begins a handshake on a connected, non-blocking socket. Takes over the socket, which is closed if out of memory. */
void pd_handshake_begin(pd_uvloop *loop, int fd, const char *peer);
/* Closes handshakes that have exceeded server.handshake_timeout, or that failed more than 2 s ago. Called several times
 * a second. */
void pd_handshakes_tick(pd_uvloop *loop);
/* Closes all handshakes, and ends the thread after the tasks that it has. */
void pd_handshakes_end(pd_uvloop *loop);

enum { PD_MOST_COMPUTED = 2 }; /* most tasks that the thread may have: the one that it runs, and the next one */

typedef struct pd_handshake_thread pd_handshake_thread;

/* Starts the thread that computes handshakes. Returns NULL if that is impossible. */
pd_handshake_thread *pd_handshake_thread_new(pd_uvloop *loop);
/* Ends the thread after the tasks that it has, calls `done` of these tasks, and frees the thread. Accepts NULL. */
void pd_handshake_thread_free(pd_handshake_thread *thread);
/* Gives the thread a task: calls `run` on the thread, then `done` on the loop thread. The caller makes sure that the
 * thread has at most PD_MOST_COMPUTED tasks. */
void pd_handshake_thread_post(pd_handshake_thread *thread, pd_background *work);

/* Makes a connection to a worker or an operator from a connected, non-blocking socket. `tls` is the socket's TLS stream
 * after its handshake; NULL: no TLS. PD_NO_MEMORY: out of memory, `fd` is not a socket, or the connection was refused;
 * the socket and the stream still belong to the caller. */
int pd_socket_adopt(pd_uvloop *loop, int fd, pd_tls_stream *tls, const char *peer);
/* Makes an HTTP connection from a connected, non-blocking socket. `origin` is the peer's address as a number
 * (pd_reach_origin). PD_NO_MEMORY as for pd_socket_adopt. */
int pd_socket_adopt_http(pd_uvloop *loop, int fd, uint64_t origin);

/* Makes a transport over a socket without TLS, and takes over the socket. For tests. Returns NULL if out of memory or
 * `fd` is not a socket. */
pd_transport *pd_socket_new(pd_uvloop *loop, int fd);

#endif
