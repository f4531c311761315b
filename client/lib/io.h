/* io.h - the I/O thread of a client handle: moves bytes between the core and sockets, and wakes the user's thread when
 * a call is done.
 *
 * A lock guards the core. Threads hold it only while they call the core, which is short, and never during input or
 * output. The bytes that the core lends for sending (headers, the caller's tensors) stay in place until this thread
 * reports them as sent. */
#ifndef PD_IO_H
#define PD_IO_H

#include <pthread.h>

#include "bell.h"
#include "connect.h"
#include "path.h"
#include "pump.h"
#include "sock.h"

/* A thread of the user that waits for a ticket. The struct is that thread's memory. */
typedef struct pd_waiter {
    pd_ticket_id ticket;
    struct pd_waiter *next;
    /* If the thread waits for several cores (pd_io_watch): the bell that is rung when the ticket is done, else NULL;
     * and, guarded by the bell's lock, that this was done, and that the operation had an error. */
    pd_bell *bell;
    size_t shard; /* for the waiting thread's own use: the core's number */
    bool told, failed;
} pd_waiter;

/* Adds a waiter to a list, or removes it. */
static inline void pd_waiter_add(pd_waiter **list, pd_waiter *waiter)
{
    waiter->told = waiter->failed = false;
    waiter->next = *list;
    *list = waiter;
}

static inline void pd_waiter_remove(pd_waiter **list, const pd_waiter *waiter)
{
    while (*list != waiter) list = &(*list)->next;
    *list = waiter->next;
}

/* The I/O thread of one handle, and what it shares with the user's threads. */
typedef struct pd_io {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* wakes the user's threads that wait for a ticket */
    pthread_t thread;
    pd_core *core;      /* the client's protocol state machine; guarded by `lock`; freed by its owner */
    pd_waiter *waiters; /* guarded by `lock`: list of the user's threads that wait */
    /* Guarded by `lock`. done_fd: event descriptor that tells the user of tickets that are done; -1: the user has not
     * asked for it. borrows_fd: another one closes it. told: the core's calls.ended when the descriptor was last
     * written. */
    int done_fd;
    bool borrows_fd;
    uint64_t told;
    /* Guarded by `lock`. stop: the thread must end. idle: the thread sleeps until `until_ns`, or until pd_io_leave
     * wakes it. */
    bool stop, idle;
    uint64_t until_ns;
    /* Event descriptors that wake the thread. wake_fd: there may be bytes to send. stop_fd: the thread must end.
     * move_fd: it must not wait for the present address any more: the shard has moved, or the thread must end. */
    int wake_fd, stop_fd, move_fd;
    const pd_address *urls; /* borrowed: core->setup.addresses, which only the I/O thread changes */
    uint64_t followed;      /* number of changes of the table of shards that the core has taken over (follow.h) */
    /* For each address: the lookup of its host that the I/O thread has begun and not used yet; NULL: none. */
    pd_lookup **lookups;
    size_t n_lookups;        /* places in `lookups` */
    const pd_secure *secure; /* borrowed: the files of tls:// addresses */
    /* Used by the I/O thread alone. pump: moves bytes between core and socket. path: watches the connection. */
    pd_pump pump;
    pd_path path;
    bool watches; /* `path` watches connections; false: the handle is impatient, and never connects again */
} pd_io;

int pd_io_start(pd_io *io, pd_core *core, const pd_address *urls, size_t n_urls, const pd_secure *secure,
                pd_error *err);
/* Closes the connection, and stops the I/O thread. */
void pd_io_stop(pd_io *io);

/* Lock and unlock the core. Any thread may call them. pd_io_leave wakes the I/O thread if there are bytes to send, or
 * if the core has something to do earlier than planned. */
void pd_io_enter(pd_io *io);
void pd_io_leave(pd_io *io);
/* Waits until the call with this ticket is done. Returns false if it is not done after `seconds`. Called by a thread of
 * the user while the core is locked; several threads may wait at once. */
bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds);
/* Adds a waiter, whose fields `ticket` and `bell` are set: the bell is rung once the call with this ticket is done,
 * also if it is done already. Called without the core's lock. */
void pd_io_watch(pd_io *io, pd_waiter *waiter);
void pd_io_unwatch(pd_io *io, pd_waiter *waiter);
/* Makes the thread write `fd` when a ticket is done. The caller closes the descriptor, after pd_io_stop. */
void pd_io_lend_fd(pd_io *io, int fd);
/* Returns the event descriptor that becomes readable when a ticket is done. The first call makes it, and it is readable
 * then. -1: the system gives none. Called while the core is locked. */
int pd_io_done_fd(pd_io *io);

#endif
