/* sim_twin.h - the undisturbed twin of a job: a store of its own that gets the same contributions one by one. */
#ifndef SIM_TWIN_H
#define SIM_TWIN_H

#include "../support/rig.h"
#include "sim_plan.h"

/* Makes the twin, to which all ranks have declared their parameters. The caller frees it with rig_free. */
void sim_twin_begin(rig *r, const sim_job *job, uint64_t chunk);
/* Sends one frame with all chunks that the rank has of a parameter. `lr`: the learning rate that the frame brings;
 * NULL: none. `whole`: it is one of so many whose weights are replaced; 0: none are. */
void sim_twin_send(rig *r, pd_request_kind kind, const sim_job *job, uint32_t rank, uint64_t step, double weight,
                   const char *lr, uint32_t p, const float *values, uint32_t whole);
/* Tells the twin that the rank has no gradient of a parameter in this step. */
void sim_twin_skip(rig *r, const sim_job *job, uint32_t rank, uint64_t step, uint32_t p);

#endif
