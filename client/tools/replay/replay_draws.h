/* replay_draws.h - reads the random numbers that a trace of distributed_kron recorded: tensors `probe/TTTT/NAME`,
 * and metadata `balanced_steps`, a list of the steps in which the factors were balanced. In each step one random
 * number decides this for all parameters. */
#ifndef PD_REPLAY_DRAWS_H
#define PD_REPLAY_DRAWS_H

#include "replay_parts.h"

typedef struct pd_replay_draws pd_replay_draws;

/* Returns true if the trace has recorded random numbers. */
bool pd_replay_draws_wanted(const pd_trace *trace);
/* Opens the recorded random numbers. Each of `parts` must be a whole parameter. Borrows `trace` and `parts`. The
 * caller closes *out. PD_INVALID_ARGUMENT: balanced_steps is no list. PD_NO_MEMORY: out of memory. */
int pd_replay_draws_open(pd_replay_draws **out, const pd_trace *trace, const pd_replay_parts *parts, pd_error *err);
void pd_replay_draws_close(pd_replay_draws *draws); /* accepts NULL */

/* Reads the random numbers of a step, counted from 1. *out has an entry for each of `parts` and is valid until the
 * next call. PD_INVALID_ARGUMENT: a probe is too large. PD_NO_MEMORY: out of memory. */
int pd_replay_draws_at(pd_replay_draws *draws, int64_t step, const pd_draws **out, pd_error *err);

#endif
