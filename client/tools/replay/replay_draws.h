/* replay_draws.h - random numbers that a trace recorded: `probe/TTTT/NAME`, and metadata `balanced_steps`, a list of
 * the steps in which the one draw for all parameters had the factors balanced. */
#ifndef PD_REPLAY_DRAWS_H
#define PD_REPLAY_DRAWS_H

#include "replay_parts.h"

typedef struct pd_replay_draws pd_replay_draws;

/* Returns true if the trace has recorded some. */
bool pd_replay_draws_wanted(const pd_trace *trace);
/* Opens the draws for parts that are whole parameters. Borrows both. The caller closes *out. PD_INVALID_ARGUMENT:
 * balanced_steps is no list. PD_NO_MEMORY. */
int  pd_replay_draws_open(pd_replay_draws **out, const pd_trace *trace, const pd_replay_parts *parts, pd_error *err);
void pd_replay_draws_close(pd_replay_draws *draws);         /* accepts NULL */

/* Reads the draws of a step, counted from 1, for each part; borrowed until the next call. PD_INVALID_ARGUMENT: a probe
 * that is too large. PD_NO_MEMORY. */
int  pd_replay_draws_at(pd_replay_draws *draws, int64_t step, const pd_draws **out, pd_error *err);

#endif
