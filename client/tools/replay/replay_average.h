/* replay_average.h - plays a trace of averages in this process, and judges recorded weighted means. */
#ifndef PD_REPLAY_AVERAGE_H
#define PD_REPLAY_AVERAGE_H

#include "recipe.h"
#include "replay_case.h"
#include "trace.h"
#include "verdict.h"

/* A trace of averages (pd_trace_averages) has as many replicas as the recipe's shards and aggregate want.
 * PD_INVALID_ARGUMENT. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
/* Computes what each replica gets of those that hold the same weights, with the arithmetic library, and notes how far
 * it is from the record. PD_INVALID_ARGUMENT; PD_NO_MEMORY. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);
/* Codes as pd_replay_routine has them. */
int pd_judge_weighted_mean(pd_case *c);

#endif
