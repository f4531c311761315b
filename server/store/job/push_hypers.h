/* push_hypers.h - hyperparameters that workers send with a push. They apply to the step of the round that the push
 * contributes to. Step thread. */
#ifndef PD_PUSH_HYPERS_H
#define PD_PUSH_HYPERS_H

#include "job.h"

/* Checks the hyperparameters that a push brings, as far as they concern one parameter: each against the parameter's
 * optimizer rule and against the values that other ranks sent for the same round, and all together. `number` is the
 * number of the push's frame. *known gets bit i if the parameter's optimizer has hyperparameter i of the push.
 * PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int pd_push_hypers_check(pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err);
/* Checks that each hyperparameter of a push belongs to the optimizer of at least one parameter in it.
 * PD_INVALID_ARGUMENT: some hyperparameter belongs to none. */
int pd_push_hypers_all_known(const pd_request *frame, uint64_t known, pd_error *err);
/* Keeps the hyperparameters of a push for the parameter's open round. pd_push_hypers_check must have checked them
 * before. */
void pd_push_hypers_keep(pd_param *param, uint32_t rank);

#endif
