/* push_hypers.h - hyperparameters sent with a push: they hold for the round that the push contributes to. Step
 * thread. */
#ifndef PD_PUSH_HYPERS_H
#define PD_PUSH_HYPERS_H

#include "job.h"

/* Checks the frame's values for a parameter: against its rule, against those that others sent for the same round, and
 * together. `number`: of the frame. *known gets bit i where some row has hyperparameter i of the frame.
 * PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int  pd_push_hypers_check(pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err);
/* Checks that every hyperparameter of the frame belongs to some row. PD_INVALID_ARGUMENT. */
int  pd_push_hypers_all_known(const pd_request *frame, uint64_t known, pd_error *err);
/* Keeps the checked values for the parameter's open round. */
void pd_push_hypers_keep(pd_param *param, uint32_t rank);

#endif
