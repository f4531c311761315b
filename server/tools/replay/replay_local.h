/* replay_local.h - plays a trace with the optimizer library in this process, without a
 * daemon. */
#ifndef PD_REPLAY_LOCAL_H
#define PD_REPLAY_LOCAL_H

#include "recipe.h"
#include "replay_state.h"
#include "trace.h"
#include "verdict.h"

/* Plays a checked trace step by step from its initial weights, with the recorded random numbers.
 *
 * Notes in verdicts[parameter] how far the weights are from the recorded ones. Notes in *updates how far the
 * changes of weights are from the recorded ones. If gradients were not recorded but can be computed (replay_net.h),
 * the losses are compared instead, in the verdict after that of the last parameter. If `state` is set, recorded
 * optimizer state is compared, too.
 *
 * A step must fail if and only if it failed in the record, and with the same cause. If all recorded steps failed,
 * the optimizer may also refuse the parameters.
 *
 * PD_UNIMPLEMENTED: the trace cannot be played in this way; the error says why. PD_FAILED_PRECONDITION: a step
 * failed that was recorded to succeed, or the reverse. Other codes: the optimizer's error. */
int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates,
                    pd_replay_state *state, pd_error *err);

#endif
