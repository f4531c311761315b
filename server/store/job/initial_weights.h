/* initial_weights.h - the weights that a job begins with: who sends them, and when they are published. Step thread. */
#ifndef PD_INITIAL_WEIGHTS_H
#define PD_INITIAL_WEIGHTS_H

#include "job.h"

/* Returns whether the parameter has weights, or all that the rank has to give of them. */
bool pd_init_has_come(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether the rank has to give initial weights of this parameter, and has not. */
bool pd_init_is_owed(const pd_job *job, const pd_param *param, uint32_t rank);
/* Returns whether this rank is asked for initial weights of some parameter. */
bool pd_init_is_asked_of(const pd_job *job, uint32_t rank);
/* Takes initial weights out of the inbox. Takes the frame. */
void pd_init_take(pd_job *job, pd_request *frame);
/* Files initial weights that are averaged into the parameters' rounds. Takes the frame. */
void pd_init_file(pd_job *job, pd_request *frame, uint64_t now_ns);
/* Publishes the parameter if its initial weights are complete, and fills *closed then. */
bool pd_init_publish_landed(pd_job *job, pd_param *param, pd_closed *closed);

#endif
