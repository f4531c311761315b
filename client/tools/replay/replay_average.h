/* replay_average.h - plays a trace of averages in this process, and checks recorded weighted means. */
#ifndef PD_REPLAY_AVERAGE_H
#define PD_REPLAY_AVERAGE_H

#include "recipe.h"
#include "replay_case.h"
#include "trace.h"
#include "verdict.h"

/* Checks that the number of replicas in a trace of averages (pd_trace_averages) fits the recipe's number of shards
 * and its aggregate. PD_INVALID_ARGUMENT: it does not. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
/* Averages the gradients of replicas that have the same weights, and notes in `verdicts` how far each result is from
 * the recorded one. PD_INVALID_ARGUMENT: the number of replicas does not fit. PD_NO_MEMORY: out of memory. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);
/* Computes one case of a weighted mean and compares it with the record. Returns the codes of pd_replay_routine. */
int pd_judge_weighted_mean(pd_case *c);

#endif
