/* uvloop.h - the daemon's libuv loop: its timer, wake-ups and signals, its listening sockets, and the sockets of its
 * connections with their TLS handshakes. Loop thread.
 *
 * Only this header includes uv.h. Only daemon.c, handshake.c, listen.c and socket.c use it.
 *
 * **Handshakes.** A connection on a tls:// address is a handshake until its peer is known. Handshakes are bounded in
 * time, memory and number. A peer that has sent nothing, or only a part of its first message, costs a small struct: the
 * kernel wakes the loop when the message is whole. The arithmetic runs on a thread of lower priority, because a
 * handshake may be late, but a step may not. A connection that is not through after server.handshake_timeout is closed.
 * There are at most server.max_connections handshakes, and few of those may have the state that TLS keeps between two
 * messages; beyond these limits the oldest one gives way, because an honest peer takes milliseconds. */
#ifndef PD_UVLOOP_H
#define PD_UVLOOP_H

#include "conversation.h"
#include "paramd/error.h"
#include "reach.h"
#include "tls_stream.h"
#include "transport.h"

#include <stdbool.h>
#include <uv.h>

/* Turns SIGTERM, SIGINT and SIGHUP into events of the loop, at most once in a process.
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

/* Opens the pipe from the signal handler to the loop. `out` must be zeroed memory. PD_UNAVAILABLE: the process has
 * no free file descriptors; nothing has changed. */
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
    PD_HANDSHAKE_SILENT,   /* the client's first message is not here */
    PD_HANDSHAKE_QUEUED,   /* a message is here, and waits for a thread */
    PD_HANDSHAKE_COMPUTED, /* a thread works on it */
    PD_HANDSHAKE_ANSWERED, /* waits for the client's next message */
    PD_HANDSHAKE_ENDING,   /* has failed: the client gets a moment to read why */
    PD_HANDSHAKE_STATES
};

typedef struct pd_handshakes {
    struct pd_handshake *list[PD_HANDSHAKE_STATES]; /* oldest first */
    unsigned n[PD_HANDSHAKE_STATES];
    struct pd_handshake_thread *thread; /* started by the first handshake */
    unsigned dropped;                   /* handshakes that were dropped and are not in the log yet */
    uint64_t logged_ms;                 /* time of the last such line */
    bool ended;
} pd_handshakes;

typedef struct pd_listener {
    struct pd_uvloop *loop;
    uv_poll_t poll;
    int fd;
    bool secure;    /* its connections speak TLS */
    bool http;      /* its connections speak HTTP, not paramd's protocol */
    char path[108]; /* path of a Unix socket that the daemon has made and removes at the end; "": not a Unix socket */
} pd_listener;

typedef struct pd_uvloop {
    pd_daemon *daemon;
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_timer_t timer;
    pd_signals signals;
    uv_poll_t input;
    bool watches_input; /* the end of the standard input ends the daemon */
    pd_handshakes handshakes;
    pd_listener listener[2 * PD_MAX_LISTENERS];
    int n_listeners, spare_fd; /* spare_fd: file descriptor that is closed for a moment to accept, and then refuse, a
                                * connection when no other one is free */
    bool paused;               /* no file descriptor is free, so no connections are accepted until the next tick of the
                                * timer */
    bool loads;                /* jobs are being loaded: only connections for HTTP are accepted */
    bool opens_http;           /* the listeners that are being opened are for HTTP */
    unsigned port, http_port;  /* ports of the first TCP listeners; 0: there is none */
} pd_uvloop;

/* Opens the listening sockets that the settings name, or takes those that the service manager has opened. Errors are
 * those of pd_daemon_listen. */
int pd_listen(pd_uvloop *loop, pd_error *err);
/* Opens the HTTP listener that the settings name, if any, or takes the service manager's sockets for it. Errors are
 * those of pd_daemon_listen. */
int pd_listen_http(pd_uvloop *loop, pd_error *err);
/* Starts to accept connections; while jobs are loaded, only those for HTTP. Call it again when they are loaded. */
void pd_listen_begin(pd_uvloop *loop);
/* Closes the listening sockets for workers and operators. The HTTP listener stays: a daemon that drains says so. */
void pd_listen_end_workers(pd_uvloop *loop);
/* Closes all listening sockets. */
void pd_listen_end(pd_uvloop *loop);

/* Begins a handshake on a connected, non-blocking socket, and takes ownership of it. */
void pd_handshake_begin(pd_uvloop *loop, int fd, const char *peer);
/* Closes connections whose time is over. Called several times a second. */
void pd_handshakes_tick(pd_uvloop *loop);
/* Closes all. Those that a thread works on end when it is done. */
void pd_handshakes_end(pd_uvloop *loop);

enum { PD_MOST_COMPUTED = 2 }; /* tasks that the thread has at a time: the one that it runs, and the next */

typedef struct pd_handshake_thread pd_handshake_thread;

/* Starts the thread. Returns NULL if that is impossible. */
pd_handshake_thread *pd_handshake_thread_new(pd_uvloop *loop);
/* Ends the thread after the tasks that it has, calls their `done`, and frees it. Accepts NULL. */
void pd_handshake_thread_free(pd_handshake_thread *thread);
/* Gives the thread a task: `run` is called there, then `done` on the loop thread. The caller sees to it that the thread
 * never has more than PD_MOST_COMPUTED. */
void pd_handshake_thread_post(pd_handshake_thread *thread, pd_background *work);

/* Gives a connected non-blocking socket to the conversation, which makes a connection of it; over TLS unless `tls`, the
 * socket's stream with a complete handshake, is NULL. PD_NO_MEMORY, also if `fd` is no socket: both are still the
 * caller's. */
int pd_socket_adopt(pd_uvloop *loop, int fd, pd_tls_stream *tls, const char *peer);
/* The same for a connection that speaks HTTP. `origin` is the peer's address as a number (pd_reach_origin). */
int pd_socket_adopt_http(pd_uvloop *loop, int fd, uint64_t origin);

/* Makes a transport over a socket without TLS, which it then owns. For tests. Returns NULL if out of memory or `fd` is
 * no socket. */
pd_transport *pd_socket_new(pd_uvloop *loop, int fd);

#endif
