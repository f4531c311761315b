/* uvloop.h - the handles of the libuv loop and its listening sockets. Loop thread.
 *
 * With signals.h the only header that includes uv.h. Its users are daemon.c, listen.c and socket.c. */
#ifndef PD_UVLOOP_H
#define PD_UVLOOP_H

#include <uv.h>

#include "conversation.h"
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
    bool         paused;                        /* listeners wait for the next tick: no descriptors are left */
    unsigned     port;
} pd_uvloop;

#endif
