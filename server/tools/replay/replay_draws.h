/* replay_draws.h - reads the random numbers of a recorded run of distributed_kron.
 *
 * They are in tensors `probe/TTTT/NAME` (TTTT: step), and in the metadata `balanced_steps`, a list of the steps in
 * which the factor matrices were balanced. In each step one random number decides for all parameters whether they
 * are balanced. */
#ifndef PD_REPLAY_DRAWS_H
#define PD_REPLAY_DRAWS_H

#include "replay_parts.h"

typedef struct pd_replay_draws pd_replay_draws;

/* Returns true if the trace has random numbers. */
bool pd_replay_draws_wanted(const pd_trace *trace);
/* Begins to read the recorded random numbers. Each of `parts` (the declared parameters) must be a whole parameter of
 * the trace. Borrows `trace` and `parts`. The caller closes *out. PD_INVALID_ARGUMENT: the metadata balanced_steps is
 * no list. PD_NO_MEMORY: out of memory. */
int pd_replay_draws_open(pd_replay_draws **out, const pd_trace *trace, const pd_replay_parts *parts, pd_error *err);
void pd_replay_draws_close(pd_replay_draws *draws); /* accepts NULL */

/* Reads the recorded random numbers of a step; steps count from 1. *out has an entry for each declared parameter
 * and is valid until the next call. PD_INVALID_ARGUMENT: a tensor of random numbers is too large. PD_NO_MEMORY: out
 * of memory. */
int pd_replay_draws_at(pd_replay_draws *draws, int64_t step, const pd_draws **out, pd_error *err);

#endif
