/* replay_average.h - plays a trace of averages in this process, and
 * checks recorded weighted means. */
#ifndef PD_REPLAY_AVERAGE_H
#define PD_REPLAY_AVERAGE_H

#include "recipe.h"
#include "replay_case.h"
#include "trace.h"
#include "verdict.h"

/* Checks that the number of replicas in a trace of averages fits the number of shards (parts of the weights)
 * and the way of averaging. PD_INVALID_ARGUMENT: it does not. */
int pd_replay_check_replicas(const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
/* Averages the recorded gradients of replicas that have the same shard of the weights, and notes in
 * `verdicts` how far each average is from the recorded one. PD_INVALID_ARGUMENT: the number of replicas does not
 * fit. PD_NO_MEMORY: out of memory. */
int pd_replay_average(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_error *err);
/* Computes one recorded case of a weighted mean and compares the result with the record. Returns PD_OK or an error
 * of pd_replay_routine. */
int pd_judge_weighted_mean(pd_case *c);

#endif
