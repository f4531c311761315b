/* io.h - the handle's I/O thread: runs the pump over sockets, and wakes the user's thread when an operation is done.
 *
 * A lock guards the core. It is held while the core works, which is short, and never during input or output. The
 * bytes that the core lends for sending (headers, the caller's tensors) stay in place until this thread reports them
 * as sent. */
#ifndef PD_IO_H
#define PD_IO_H

#include <pthread.h>

#include "pump.h"
#include "sock.h"

typedef struct pd_io {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    pd_core *core;        /* guarded by `lock`; borrowed */
    pd_ticket_id awaited; /* guarded by `lock`: ticket that the user's thread waits for; 0: none */
    bool stop, idle;      /* guarded by `lock`; idle: the thread sleeps until `until_ns`, or until pd_io_leave wakes
                           * it */
    uint64_t until_ns;
    int wake_fd, stop_fd;   /* event descriptors; wake_fd: there may be bytes to send; stop_fd: the thread has to
                             * stop */
    const pd_address *urls; /* borrowed */
    pd_pump pump;           /* used by the I/O thread alone */
} pd_io;

int pd_io_start(pd_io *io, pd_core *core, const pd_address *urls, pd_error *err);
/* Closes the connection, and stops and joins the thread. */
void pd_io_stop(pd_io *io);

/* Lock and unlock the core for the caller, which may be any thread. pd_io_leave wakes the I/O thread if there are
 * bytes to send, or if the core has something to do earlier than planned. */
void pd_io_enter(pd_io *io);
void pd_io_leave(pd_io *io);
/* Waits until the ticket is done. Returns false if it is not done after `seconds`. Called by the user's thread with
 * the core locked. */
bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds);

#endif
