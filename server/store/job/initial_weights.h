/* initial_weights.h - takes the weights with which a job begins from the ranks that must send them, and publishes them.
 * Step thread. */
#ifndef PD_INITIAL_WEIGHTS_H
#define PD_INITIAL_WEIGHTS_H

#include "job.h"

/* Returns true if the parameter has weights already, or the rank has sent all its initial weights of this parameter. */
bool pd_init_has_come(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether the rank must still send initial weights of this parameter. */
bool pd_init_is_owed(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether the rank must still send initial weights of any parameter. */
bool pd_init_is_asked_of(const pd_job *job, uint32_t rank);
/* Handles a frame of initial weights from the inbox: checks it, copies its weights, publishes parameters that are
 * complete now, and answers. Takes ownership of the frame. */
void pd_init_take(pd_job *job, pd_request *frame);
/* Handles a frame of initial weights in a job that averages them over the ranks: files them as contributions to the
 * parameters' rounds. Takes ownership of the frame. */
void pd_init_file(pd_job *job, pd_request *frame, uint64_t now_ns);
/* Publishes the parameter if all its initial weights have come and it has not been published. Returns whether it
 * published the parameter; if so, fills *closed, the report to the loop thread. */
bool pd_init_publish_landed(pd_job *job, pd_param *param, pd_closed *closed);

/* Forgets which initial weights the rank has sent of a parameter, in a job whose sets of ranks are open. */
void pd_init_forget(pd_param *param, uint32_t rank);

#endif
