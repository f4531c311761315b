/* push_hypers.h - hyperparameters that are sent with a push. They apply to the round that the push contributes to.
 * Step thread. */
#ifndef PD_PUSH_HYPERS_H
#define PD_PUSH_HYPERS_H

#include "job.h"

/* Checks the frame's hyperparameters for one parameter: against its rule, against the values that other ranks sent
 * for the same round, and against each other. PD_INVALID_ARGUMENT, PD_NO_MEMORY.
 *
 * `number` is the frame's number. *known gets bit i if the parameter's optimizer has hyperparameter i of the frame. */
int pd_push_hypers_check(pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err);
/* Checks that each hyperparameter of the frame belongs to the optimizer of at least one parameter in it.
 * PD_INVALID_ARGUMENT. */
int pd_push_hypers_all_known(const pd_request *frame, uint64_t known, pd_error *err);
/* Keeps the hyperparameters of the frame, which pd_push_hypers_check has checked, for the parameter's open round. */
void pd_push_hypers_keep(pd_param *param, uint32_t rank);

#endif
