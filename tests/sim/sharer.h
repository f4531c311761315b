/* sharer.h - workers without the client library that share memory with the server: slow ones, and hostile ones. */
#ifndef SIM_SHARER_H
#define SIM_SHARER_H

#include "sim.h"

/* Starts the worker of a fault of the plan, with a job of its own. */
void sim_sharer_start(sim *s, const sim_fault *fault);
/* Checks that their requests are answered, and that the server closes those who keep what it lends. */
void sim_sharers_check(sim *s);
/* Disconnects them, but for those that the server must close. */
void sim_sharers_leave(sim *s);
void sim_sharers_free(sim *s);

#endif
