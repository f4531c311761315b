/* replay_state.h - recorded optimizer state, `state/TTTT/NAME/FIELD`, beside the slots of a model that is being replayed.
 *
 * FIELD is the name of a slot ("momentum"), or name and number ("statistics/3"). A quantized value comes as FIELD/quantized, FIELD/bucket_size and,
 * where it was taken apart, FIELD/diagonal; it is compared as what it stands for, not code by code: a code may flip. A recorded tensor
 * that has no slot must be all zeros: then there is nothing to keep. */
#ifndef PD_REPLAY_STATE_H
#define PD_REPLAY_STATE_H

#include "judge.h"
#include "paramd/optim.h"
#include "trace.h"

typedef struct pd_replay_state pd_replay_state;

/* What the trace records of its parameters' state; it has been checked and outlives *out, which the caller frees.
 * PD_INVALID_ARGUMENT: a tensor that belongs to no parameter or step, or is none (names it). PD_NO_MEMORY. */
int  pd_replay_state_new(pd_replay_state **out, const pd_trace *trace, pd_error *err);
void pd_replay_state_free(pd_replay_state *state);              /* accepts NULL */

/* Compares all that was recorded after this step. PD_NOT_FOUND: the model has no such slot. PD_OUT_OF_RANGE: it has another size.
 * PD_INVALID_ARGUMENT: a quantized value lacks a part. PD_NO_MEMORY. */
int pd_replay_state_compare(pd_replay_state *state, const pd_model *model, int64_t step, pd_error *err);

/* The worst of all tensors compared so far, and that tensor's name ("": none yet). */
const pd_verdict *pd_replay_state_verdict(const pd_replay_state *state);
const char       *pd_replay_state_worst(const pd_replay_state *state);

#endif
