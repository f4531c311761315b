/* lifecycle.h - ends the daemon and reloads its configuration. Loop thread.
 *
 * A shutdown drains the store, answers the Shutdown requests of operators, and stops the loop. A reload, which SIGHUP
 * begins, lets another thread read the configuration, and applies the limits that may change while the daemon runs. */
#ifndef PD_LIFECYCLE_H
#define PD_LIFECYCLE_H

#include "loop.h"

/* Begins the shutdown: asks the store to drain, and ends listening. The loop stops after
 * the store has answered. A second call does nothing. */
void pd_shutdown_begin(pd_daemon *daemon);
/* Notes that the store has drained, or has missed the drain's deadline, and answers the Shutdown requests of
 * operators: with `lost`, the error of a drain whose last checkpoints have failed, or Ok if that is NULL. */
void pd_shutdown_drained(pd_daemon *daemon, const pd_error *lost);
/* Stops the loop if the store has drained and all answers are sent. Called at the end of each turn of the loop. */
void pd_shutdown_finish(pd_daemon *daemon);
/* Stops the loop if the deadline of the shutdown has passed. */
void pd_shutdown_tick(pd_daemon *daemon, uint64_t now_ms);

/* Lets another thread read the configuration, then applies the limits in it. Does nothing if the daemon is stopping. A
 * call while the configuration is being read starts another reload afterwards. A call before pd_conversation_start is
 * remembered. */
void pd_reloading_begin(pd_daemon *daemon);
/* Begins the reload that was asked for before the start, if there is one. Part of pd_conversation_start. */
void pd_reloading_start(pd_daemon *daemon);

#endif
