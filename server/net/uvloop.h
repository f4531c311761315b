/* uvloop.h - the conversation on libuv: one loop, its handles, its listening sockets. Loop thread. Sole user of uv.h, with listen.c, signals.c and socket.c. */
#ifndef PD_UVLOOP_H
#define PD_UVLOOP_H

#include <uv.h>

#include "platform.h"
#include "signals.h"

#define PD_MAX_LISTENERS 16

typedef struct pd_listener {
    struct pd_uvloop *loop;
    uv_poll_t         poll;
    int               fd;
    char              path[108];                /* Unix socket that we made: removed at the end */
} pd_listener;

typedef struct pd_uvloop {
    pd_daemon   *daemon;
    uv_loop_t    uv;
    uv_async_t   wake;
    uv_prepare_t prepare;
    uv_timer_t   timer;
    pd_signals   signals;
    pd_listener  listener[PD_MAX_LISTENERS];
    int          n_listeners, spare_fd;         /* spare_fd: closed for a moment when descriptors run out */
    bool         paused;                        /* listeners wait for the next tick: no descriptors */
    unsigned     port;
} pd_uvloop;

/* Takes a connected non-blocking socket. PD_NO_MEMORY: it is still the caller's. */
int  pd_uvloop_connect(pd_uvloop *loop, int fd, const char *peer);

/* ---- socket.c ---- */
/* A transport over a non-blocking socket, which it owns from then on. NULL: out of memory, or no socket; it is still the caller's. */
pd_transport *pd_socket_new(pd_uvloop *loop, int fd);
/* The opposite: frees the transport and leaves the socket open. Before the first watch. */
void          pd_socket_release(pd_transport *transport);

/* ---- listen.c ---- */
int  pd_listen(pd_uvloop *loop, pd_error *err);
void pd_listen_begin(pd_uvloop *loop);          /* accepts from now on */
void pd_listen_end(pd_uvloop *loop);

#endif
