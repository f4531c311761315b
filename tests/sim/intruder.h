/* intruder.h - peers that speak the wire by hand: operators, and clients that stop in the middle, never read or make no sense. */
#ifndef SIM_INTRUDER_H
#define SIM_INTRUDER_H

#include "sim.h"

/* Begins a fault of the plan that is somebody at the other end of a connection of its own. */
void sim_intruder_start(sim *s, const sim_fault *fault);
/* An operator drops a job now. */
void sim_drop_job(sim *s, uint32_t job);
void sim_intruders_check(sim *s);
/* All of them go. */
void sim_intruders_leave(sim *s);
void sim_intruders_free(sim *s);

#endif
