/* replay_state.h - recorded optimizer state, `state/TTTT/NAME/FIELD`, beside the slots of a model that is being
 * replayed.
 *
 * FIELD is the name of a slot ("momentum_buffer"), or name and number ("statistics/3"), of the parameter or of a block
 * ("block_2.factor_matrices.1"). A quantized value comes as FIELD/quantized, FIELD/bucket_size and, where it was taken
 * apart, FIELD/diagonal; it is compared as what it stands for, not code by code: a code may flip. A recorded tensor
 * that has no slot must be all zeros: then there is nothing to keep. Inverse factor matrices of a parameter without a
 * gradient in that step, on which Meta's releases differ, are passed over. `step` is what the parameter, or its group,
 * has counted. What overflowed is infinite or NaN by the order of a sum: an entry that is not finite on both sides
 * coincides. Metadata `update_counter`, a list of a number for each step, is what the slot of that name has after it,
 * of every parameter.
 *
 * Tolerances, which tests/golden/README.md explains:
 * - That of noise_state where the trace has it, else that of the weights. It is the least tolerance of all that
 *   follows.
 * - An inverse root: a bound of first order on what rounding does to it, from the recorded root alone (root_bound.h).
 * - Momentum and filtered gradient: that of the way from the initial weights, where noise_bc32_displacement records it.
 * - Any other slot of a trace that has neither noise_state nor noise_bc32_displacement: 10 times the slot's own noise +
 *   1e-6. The noise is how far the slot moves, relatively and at most over parameters and steps, when the gradients'
 *   last bits are turned (in other models, "shaken", each in its own way).
 * - A value stored in 16 bits, and a root of such values, may be off by a unit of those. */
#ifndef PD_REPLAY_STATE_H
#define PD_REPLAY_STATE_H

#include "recipe.h"
#include "trace.h"

#define PD_REPLAY_SHAKEN 3

typedef struct pd_replay_state pd_replay_state;

/* Finds the recorded state of a checked trace, which outlives *out. The caller frees *out. PD_INVALID_ARGUMENT: a
 * tensor that belongs to no parameter or step, or is no tensor of state (names it). PD_NO_MEMORY. */
int  pd_replay_state_new(pd_replay_state **out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_state_free(pd_replay_state *state);              /* accepts NULL */
/* Returns true if there is state whose noise only shaken models show. */
bool pd_replay_state_wants_noise(const pd_replay_state *state);
/* Flips the last bit of numbers that are finite and not 0: of all of them if `way` is 0, else of about half, another
 * half for each way. */
void pd_replay_shake(float *at, int64_t n, uint64_t way);

/* Compares all tensors that were recorded after this step; roots that the model adopts late are compared then.
 * `shaken`: PD_REPLAY_SHAKEN models, or NULLs. PD_NOT_FOUND: the model has no such slot. PD_OUT_OF_RANGE: it has
 * another size. PD_INVALID_ARGUMENT: a quantized value lacks a part. PD_NO_MEMORY. */
int pd_replay_state_compare(pd_replay_state *state, const pd_model *model, const pd_model *const *shaken,
                            int64_t step, pd_error *err);

typedef struct pd_state_verdict {
    int64_t compared;           /* tensors */
    double  error, tolerance;   /* of the tensor that is farthest beyond its tolerance, or nearest to it */
    char    worst[256];         /* its name; "": none yet */
} pd_state_verdict;

/* Returns the verdict over all comparisons so far. */
pd_state_verdict pd_replay_state_verdict(const pd_replay_state *state);

#endif
