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
/* Ends the drain of a shutdown: the store has drained, or the drain's deadline has passed. Answers the Shutdown
 * requests of operators: with the error `lost` if the last checkpoints of the drain have failed, with Ok if `lost` is
 * NULL. */
void pd_shutdown_drained(pd_daemon *daemon, const pd_error *lost);
/* Stops the loop if the store has drained and all answers are sent. Called at the end of each turn of the loop. */
void pd_shutdown_finish(pd_daemon *daemon);
/* Stops the loop if the deadline of the shutdown has passed. */
void pd_shutdown_tick(pd_daemon *daemon, uint64_t now_ms);

/* Lets another thread read the configuration, then applies the limits in it. Does nothing if the daemon is stopping. If
 * a reload is under way, another one follows it. If the conversation has not started yet, the reload begins in
 * pd_reloading_start. */
void pd_reloading_begin(pd_daemon *daemon);
/* Begins the reload that was requested before pd_conversation_start, if there is one. pd_conversation_start calls
 * it. */
void pd_reloading_start(pd_daemon *daemon);

#endif
