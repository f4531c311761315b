/* replay_step.h - decides whether a step that is played ended as the recorded step did: with success, or with the
 * same error. Used by replays in this process and through a daemon. */
#ifndef PD_REPLAY_STEP_H
#define PD_REPLAY_STEP_H

#include "recipe.h"
#include "trace.h"

/* Compares the end of a step with the record. `rc` and `ours` are the code and the error with which the step ended.
 * If the recorded step has no error, returns `rc` and copies `ours`.
 *
 * PD_OK: the step ended as recorded, with success or with the same cause of failure.
 *
 * PD_FAILED_PRECONDITION: the recorded step has an error, but this step succeeded or failed for another reason. */
int pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err);
/* Returns true if all recorded steps failed. */
bool pd_replay_always_fails(const pd_trace *trace);
/* Returns true if paramd may refuse the parameters with error `rc`, as all recorded steps failed, or left only NaN
 * in the weights. */
bool pd_replay_is_refusal(const pd_trace *trace, int rc);
/* Sets all weights to NaN if the recorded weights are NaN after every step. Called after paramd has refused the
 * parameters, so that the comparison of weights succeeds. */
void pd_replay_refused(const pd_trace *trace, float *const *weights);
/* Finds the learning rate that was recorded for a step. Returns false if none was recorded. */
bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate);

#endif
