/* replay_step.h - the rules by which both ways of playing, in this process and through a daemon, judge a step. */
#ifndef PD_REPLAY_STEP_H
#define PD_REPLAY_STEP_H

#include "recipe.h"
#include "trace.h"

/* Compares how a step ended with the record. `rc` and `ours`: its code and error. PD_OK, also for an error where one
 * was recorded; `ours` itself where none was; PD_FAILED_PRECONDITION where one was and did not come, or named another
 * cause. */
int  pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err);
/* Upstream failed in every step. */
bool pd_replay_always_fails(const pd_trace *trace);
/* Upstream failed in every step, or made NaN of all weights in each, and `rc` says that the declaration is refused. */
bool pd_replay_is_refusal(const pd_trace *trace, int rc);
/* Writes the weights that a refusal stands for: where upstream made NaN of everything, NaN. */
void pd_replay_refused(const pd_trace *trace, float *const *weights);
/* The learning rate recorded for a step; false: none. */
bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate);

#endif
