/* platform.h - what the conversation needs from the event loop around it, and how that loop drives it.
 *
 * Loop thread. In the daemon the platform is libuv (uvloop.c); in tests/sim it is the simulator, which has no sockets and no clock. The
 * conversation itself (daemon.c, conn.c and everything that they call) does not know which one it runs on. */
#ifndef PD_PLATFORM_H
#define PD_PLATFORM_H

#include "daemon.h"
#include "transport.h"

/* Work for another thread: `run` is called there, then `done` on the loop thread. First member of whatever the work is about. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

typedef struct pd_platform {
    void     *arg;
    uint64_t (*now_ms)(void *arg);              /* monotonic; stands still during a callback */
    uint64_t (*clock_ns)(void *arg);            /* monotonic; for budgets of time within a callback */
    uint64_t (*random)(void *arg);              /* a secret: hash keys are made from it */
    void     (*wake)(void *arg);                /* any thread: calls pd_daemon_take_effects soon */
    void     (*stop)(void *arg);                /* the loop ends after this turn */
    void     (*end_listening)(void *arg);       /* no new connections from now on */
    bool     (*background)(void *arg, pd_background *work);     /* false: cannot be started, nothing will be called. NULL: there are no other threads */
} pd_platform;

/* Makes the conversation. Copies `config` and `platform`; texts in them are borrowed for the daemon's life. PD_NO_MEMORY. */
int  pd_daemon_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err);
/* Borrows `requests`, where connections' requests go. */
void pd_daemon_start(pd_daemon *daemon, pd_mailbox *requests);
/* Takes a connected transport; over max_connections the peer is told and the connection ends. PD_NO_MEMORY: it is still the caller's. */
int  pd_daemon_accept(pd_daemon *daemon, pd_transport *transport, const char *peer);
/* Handles what the step thread has posted, for about a millisecond. */
void pd_daemon_take_effects(pd_daemon *daemon);
/* The end of a turn, before the loop waits: resumes connections, writes answers, posts requests. */
void pd_daemon_finish_turn(pd_daemon *daemon);
/* Several times a second: deadlines. */
void pd_daemon_tick(pd_daemon *daemon);
/* A signal: the first drains and stops, the second stops at once. */
void pd_daemon_interrupt(pd_daemon *daemon, const char *name);
/* Closes all connections and gives back what the store has lent. */
void pd_daemon_close_all(pd_daemon *daemon);
/* After the step thread has ended and all background work is done. Accepts NULL. */
void pd_daemon_dispose(pd_daemon *daemon);
bool pd_daemon_has_conns(const pd_daemon *daemon);
bool pd_daemon_is_drained(const pd_daemon *daemon);
const pd_daemon_config *pd_daemon_settings(const pd_daemon *daemon);
const pd_platform      *pd_daemon_platform(const pd_daemon *daemon);

#endif
