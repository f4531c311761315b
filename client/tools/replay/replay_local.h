/* replay_local.h - plays a trace with the optimizer library in this process. */
#ifndef PD_REPLAY_LOCAL_H
#define PD_REPLAY_LOCAL_H

#include "recipe.h"
#include "replay_state.h"
#include "trace.h"
#include "verdict.h"

/* Plays a checked trace from its initial weights, step by step, and notes in verdicts[parameter] how far the weights
 * are from the recorded ones. If gradients were not recorded but can be computed (replay_net.h), the losses are judged
 * instead, in verdicts[parameters]. A step in which upstream raised an error must give an error that names the same
 * cause, and only such a step. If upstream failed in every step, the declaration may be refused from the start, too.
 * PD_UNIMPLEMENTED: cannot be played this way (why); PD_FAILED_PRECONDITION: an error came where none was recorded, or
 * the reverse; other codes: the error of the optimizer. Uses the random numbers that were recorded. *updates: over the
 * recorded updates of the steps. `state`: NULL, or compares recorded state, too. */
int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates,
                    pd_replay_state *state, pd_error *err);

#endif
