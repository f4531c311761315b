/* replay_average.h - plays a trace of averages in this process, and judges recorded weighted means. */
#ifndef PD_REPLAY_AVERAGE_H
#define PD_REPLAY_AVERAGE_H

#include "recipe.h"
#include "replay_case.h"
#include "trace.h"
#include "verdict.h"

/* Checks that a trace of averages (pd_trace_averages) has a number of replicas that the recipe's shards and aggregate
 * allow. PD_INVALID_ARGUMENT. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
/* Averages the gradients of the replicas that hold the same weights, and notes how far each result is from the record.
 * PD_INVALID_ARGUMENT; PD_NO_MEMORY. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);
/* Codes as pd_replay_routine has them. */
int pd_judge_weighted_mean(pd_case *c);

#endif
