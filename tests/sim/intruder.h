/* intruder.h - peers that write frames by hand, without the client library: operators, and clients that stop in the
 * middle, never read, or send nonsense. */
#ifndef SIM_INTRUDER_H
#define SIM_INTRUDER_H

#include "sim.h"

/* Starts the peer of a fault of the plan, with a connection of its own. */
void sim_intruder_start(sim *s, const sim_fault *fault);
/* Starts an operator who drops a job now. */
void sim_drop_job(sim *s, uint32_t job);
void sim_intruders_check(sim *s);
/* Disconnects all peers that were started here. */
void sim_intruders_leave(sim *s);
void sim_intruders_free(sim *s);

#endif
