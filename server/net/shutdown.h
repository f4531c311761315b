/* shutdown.h - stops the daemon: drains the store (rounds under way may finish), answers the Shutdown requests of
 * operators, and stops the loop. */
#ifndef PD_SHUTDOWN_H
#define PD_SHUTDOWN_H

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

#endif
