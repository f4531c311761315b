/* shutdown.h - stops the daemon: drains the store, answers the Shutdown requests of operators, and stops the loop. */
#ifndef PD_SHUTDOWN_H
#define PD_SHUTDOWN_H

#include "loop.h"

/* Asks the store to drain, and ends listening. The loop stops after the store has answered. A second call does
 * nothing. */
void pd_shutdown_begin(pd_daemon *daemon);
/* Notes that the store has answered the drain, and answers the Shutdown requests. */
void pd_shutdown_drained(pd_daemon *daemon);
/* Stops the loop if the store has drained and all answers are sent. Called at the end of each turn. */
void pd_shutdown_finish(pd_daemon *daemon);
/* Stops the loop if the deadline of the drain has passed. */
void pd_shutdown_tick(pd_daemon *daemon, uint64_t now_ms);

#endif
