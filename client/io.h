/* io.h - the handle's own thread: runs the pump over sockets, and wakes the user when an operation is done.
 *
 * The lock guards the core. It is held for the core's quick work, never during input or output: what the core gives out (headers,
 * the caller's tensors) stays in place until the core is told that it has gone or come, which this thread alone does. */
#ifndef PD_IO_H
#define PD_IO_H

#include <pthread.h>

#include "pump.h"
#include "sock.h"

typedef struct pd_io {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    pthread_t       thread;
    pd_core        *core;               /* under the lock; borrowed */
    pd_ticket_id    awaited;            /* under the lock: whom the user waits for; 0: nobody */
    bool            stop, idle;         /* under the lock; idle: the thread sleeps until `until_ns`, although it could send */
    uint64_t        until_ns;
    int             wake_fd, stop_fd;   /* readable: there may be something to send; told to stop */
    const pd_url   *urls;               /* borrowed */
    pd_pump         pump;               /* the thread's own */
} pd_io;

int  pd_io_start(pd_io *io, pd_core *core, const pd_url *urls, pd_error *err);
void pd_io_stop(pd_io *io);             /* ends the connection and joins the thread */

/* Any thread. Between the two the core is the caller's. Leaving wakes the thread where there is something to send. */
void pd_io_enter(pd_io *io);
void pd_io_leave(pd_io *io);
/* User's thread, inside. Waits until the ticket is done or `seconds` have passed (then false). */
bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds);

#endif
