/* close_step.h - a push that ends its rank's step (close_step): the rank is absent in the round of each parameter
 * that it has not pushed. Step thread. */
#ifndef PD_CLOSE_STEP_H
#define PD_CLOSE_STEP_H

#include "job.h"

/* Checks that the frame may end its rank's step. The parameters in the frame must have its number in pd_param.seen.
 * PD_FAILED_PRECONDITION: a push of another parameter was refused, and the rank has not pushed it again or reported
 * it absent. */
int pd_close_step_check(const pd_job *job, const pd_request *frame, uint64_t number, pd_error *err);
/* Files the rank as absent in the round of every parameter that it has not pushed in this step. */
void pd_close_step_file(pd_job *job, const pd_request *frame, uint64_t now_ns);
/* Marks the chunks of a refused push as refused, so that the rank cannot end the step without them. */
void pd_close_step_note_refusal(pd_job *job, const pd_request *frame);

#endif
