/* shutdown.h - the end of the daemon: drains the store, answers the operators who asked for it, and stops the loop. */
#ifndef PD_SHUTDOWN_H
#define PD_SHUTDOWN_H

#include "loop.h"

/* Asks the store to drain and ends listening. The loop stops when the store has answered. Does nothing the second
 * time. */
void pd_shutdown_begin(pd_daemon *daemon);
/* Notes that the store has answered the drain, and answers the Shutdown requests. */
void pd_shutdown_drained(pd_daemon *daemon);
/* Stops the loop if the store has drained and every answer is written. Called at the end of each turn. */
void pd_shutdown_finish(pd_daemon *daemon);
/* Stops the loop if the deadline of the drain has passed. */
void pd_shutdown_tick(pd_daemon *daemon, uint64_t now_ms);

#endif
