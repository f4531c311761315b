/* uvloop.h - the objects of the daemon's libuv loop (timer, wake-up, signals) and its listening sockets. Loop thread.
 *
 * Only this header and signals.h include uv.h. Only daemon.c, handshake.c, handshake_thread.c, input.c, listen.c and
 * socket.c use this header. */
#ifndef PD_UVLOOP_H
#define PD_UVLOOP_H

#include <uv.h>

#include "conversation.h"
#include "reach.h"
#include "signals.h"

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
    unsigned gave_way;                  /* handshakes that were ended since the log last told of them */
    uint64_t told_ms;                   /* when that was */
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

#endif
