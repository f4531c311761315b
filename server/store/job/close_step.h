/* close_step.h - handles a push that ends its rank's step (close_step): the rank is filed as absent (without a
 * gradient) in the round of each parameter that it has not pushed in this step. Step thread. */
#ifndef PD_CLOSE_STEP_H
#define PD_CLOSE_STEP_H

#include "job.h"

/* Checks that the frame may end its rank's step. The parameters are looked at once for each step: when the push comes
 * again, neither check nor filing depends on their number. After a refusal the next check begins with the parameter
 * because of which it was refused. `number` is the frame's number: the caller has stored it in
 * pd_param.seen of each parameter that the frame names. PD_FAILED_PRECONDITION: a push of some other parameter was
 * refused, and the rank has not pushed this parameter again or reported that it has no gradient of it. */
int pd_close_step_check(pd_job *job, const pd_request *frame, uint64_t number, pd_error *err);
/* Files the rank as absent (without a gradient) in the round of each parameter of which it has sent nothing in this
 * step. */
void pd_close_step_file(pd_job *job, const pd_request *frame, uint64_t now_ns);
/* Marks the chunks (sections of parameters) that a refused push brought as refused. The rank cannot end its step before
 * it has sent them again. */
void pd_close_step_note_refusal(pd_job *job, const pd_request *frame);

#endif
