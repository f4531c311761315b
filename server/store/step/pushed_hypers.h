/* pushed_hypers.h - hyperparameters that workers send with pushes. They apply to the step in which the push counts.
 *
 * Step thread. Where every rank counts in every step, all ranks of a round must send the same values. Elsewhere pushes
 * of one round may be for different steps, so their values are kept by rank and not compared. When the set of the step
 * is fixed, each hyperparameter gets the value of the lowest rank of the set that sent it; ranks outside the set keep
 * theirs for a later step, or lose them with their contributions. */
#ifndef PD_PUSHED_HYPERS_H
#define PD_PUSHED_HYPERS_H

#include "steps.h"

/* Checks the hyperparameters of a push for one of its parameters: each against the parameter's optimizer rule and
 * against values that were sent before, and all together. `number` is the number of the push's frame. Sets bit i of
 * *known if the parameter's optimizer has hyperparameter i of the push. If the parameter has no memory for them yet, it
 * is allocated, and charged where values are kept by rank. PD_INVALID_ARGUMENT, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int pd_pushed_check(pd_steps *steps, pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known,
                    pd_error *err);
/* Checks that each hyperparameter of a frame is one of `known`, or one of another optimizer of the job, whose parameters
 * may be in other frames of the push. PD_INVALID_ARGUMENT: no optimizer of the job has it. */
int pd_pushed_check_known(const pd_steps *steps, const pd_request *frame, uint64_t known, pd_error *err);
/* Keeps the hyperparameters of the push that pd_pushed_check has checked last, for the parameter's open round. */
void pd_pushed_keep(pd_param *param, uint32_t rank);

/* Takes the values of the ranks that count in the step, whose set has been fixed. Values of a rank that do not suit
 * those of lower ranks, or the schedule or the overrides of this step, are left out with a warning. */
void pd_pushed_fixed(const pd_steps *steps, pd_param *param);
/* Forgets what the rank has sent with the push whose contributions were released. */
void pd_pushed_forget(pd_param *param, uint32_t rank);
/* Forgets the values of a round that closes, except those of ranks that do not count in it. */
void pd_pushed_close(pd_param *param);
void pd_pushed_free(pd_pushed *pushed); /* accepts NULL */

#endif
