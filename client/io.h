/* io.h - the handle's own thread: runs the pump over sockets, and wakes the user when an operation is done.
 *
 * The lock guards the core. It is held for the core's quick work, never during input or output. The bytes that the core
 * gives out (headers, the caller's tensors) stay in place until this thread reports to the core that they are sent. */
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
    pd_ticket_id    awaited;            /* under the lock: the ticket for which the user waits; 0: none */
    bool            stop, idle;         /* under the lock; idle: the thread sleeps until `until_ns` and could send */
    uint64_t        until_ns;
    int             wake_fd, stop_fd;   /* readable: there may be output; the thread has to stop */
    const pd_url   *urls;               /* borrowed */
    pd_pump         pump;               /* used by the thread alone */
} pd_io;

int  pd_io_start(pd_io *io, pd_core *core, const pd_url *urls, pd_error *err);
/* Ends the connection and joins the thread. */
void pd_io_stop(pd_io *io);

/* Lock and unlock the core for the caller. Leaving wakes the thread if there is output. Any thread. */
void pd_io_enter(pd_io *io);
void pd_io_leave(pd_io *io);
/* Waits until the ticket is done. False: `seconds` have passed. User's thread, inside. */
bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds);

#endif
