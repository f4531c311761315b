/* replay_step.h - the rules by which both ways of playing, in this process and through a daemon, judge a step. */
#ifndef PD_REPLAY_STEP_H
#define PD_REPLAY_STEP_H

#include "recipe.h"
#include "trace.h"

/* Compares the end of a step with the record. `rc` and `ours`: its code and error. PD_OK: as recorded, also if an error
 * was recorded. `ours` itself if no error was recorded; PD_FAILED_PRECONDITION if one was recorded and did not come, or
 * named another cause. */
int  pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err);
/* Returns true if upstream failed in every step. */
bool pd_replay_always_fails(const pd_trace *trace);
/* Returns true if `rc` refuses the declaration, and upstream failed in every step, or made NaN of all weights in
 * each. */
bool pd_replay_is_refusal(const pd_trace *trace, int rc);
/* Writes the weights that a refusal stands for: NaN, if upstream made NaN of all weights. */
void pd_replay_refused(const pd_trace *trace, float *const *weights);
/* Finds the learning rate recorded for a step. False: none. */
bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate);

#endif
