/* close_step.h - a push that ends its rank's step: parameters of which the rank has sent nothing have no gradient
 * from it. Step thread. */
#ifndef PD_CLOSE_STEP_H
#define PD_CLOSE_STEP_H

#include "job.h"

/* Checks that frame `number`, whose own pieces are marked as seen, may end its rank's step. PD_FAILED_PRECONDITION: a
 * push of a parameter was refused and not mended. */
int  pd_close_step_check(const pd_job *job, const pd_request *frame, uint64_t number, pd_error *err);
/* Files the rank as absent from every parameter that it left out. */
void pd_close_step_file(pd_job *job, const pd_request *frame, uint64_t now_ns);
/* Remembers the pieces of a push that is refused. */
void pd_close_step_note_refusal(pd_job *job, const pd_request *frame);

#endif
