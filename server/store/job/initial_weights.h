/* initial_weights.h - the weights that a job begins with: who sends them, and when they are published. Step thread. */
#ifndef PD_INITIAL_WEIGHTS_H
#define PD_INITIAL_WEIGHTS_H

#include "job.h"

/* Returns whether the parameter has weights, or the rank has sent all its initial weights of the parameter. */
bool pd_init_has_come(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether initial weights of this parameter are missing from the rank. */
bool pd_init_is_owed(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether initial weights of some parameter are missing from the rank. */
bool pd_init_is_asked_of(const pd_job *job, uint32_t rank);
/* Handles a frame of initial weights from the inbox: checks it, copies its weights, publishes parameters that are
 * complete, and answers. Takes the frame. */
void pd_init_take(pd_job *job, pd_request *frame);
/* Files a frame of initial weights that are to be averaged, as contributions to the parameters' rounds. Takes the
 * frame. */
void pd_init_file(pd_job *job, pd_request *frame, uint64_t now_ns);
/* Publishes the parameter if its initial weights are complete. Returns whether it was published; if so, *closed is
 * filled for the loop thread. */
bool pd_init_publish_landed(pd_job *job, pd_param *param, pd_closed *closed);

#endif
