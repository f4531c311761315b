/* replay_state.h - compares recorded optimizer state, tensors `state/TTTT/NAME/FIELD`, with the slots of a replayed
 * model.
 *
 * FIELD is the name of a slot ("momentum_buffer") or a name and a number ("statistics/3"), of the whole parameter or of
 * one of its blocks ("block_2.factor_matrices.1"). The field `step` is the number of steps that the parameter, or its
 * group, has counted. The metadata `update_counter` is a list with a number for each step: the value that the slot
 * `update_counter` of every parameter has after that step.
 *
 * A quantized value has the tensors FIELD/quantized and FIELD/bucket_size, and FIELD/diagonal if its diagonal is stored
 * apart. Its decoded values are compared, not its codes, since rounding may change a code by one.
 *
 * Special cases:
 *   - If the model has no slot for a recorded tensor, the tensor must be all zeros.
 *   - Inverse factor matrices of a parameter without a gradient in a step are skipped, because releases of Meta's
 *     Shampoo differ there.
 *   - Two elements that are not finite count as equal. After an overflow, the order of a sum decides between infinity
 *     and NaN.
 *
 * Tolerances, which tests/golden/README.md explains:
 *   - For every slot at least 10 * noise_state + 1e-6; if noise_state was not recorded, the weights' tolerance.
 *   - For an inverse root: a first-order bound of the error that rounding causes, from the recorded root alone
 *     (root_bound.h).
 *   - For momentum and filtered gradient: the tolerance of the weights' distance from their initial values, if
 *     noise_bc32_displacement was recorded.
 *   - For other slots, if neither noise_state nor noise_bc32_displacement was recorded: 10 times the slot's measured
 *     noise + 1e-6. The noise is the largest relative change of the slot, over parameters and steps, in shaken models:
 *     further models whose gradients have their last bits flipped, each in another way.
 *   - For a value stored in 16 bits, or a root of such values: at least the largest relative rounding error of the
 *     type, 2^-8 for bfloat16 and 2^-11 for float16. */
#ifndef PD_REPLAY_STATE_H
#define PD_REPLAY_STATE_H

#include "recipe.h"
#include "trace.h"
#include "verdict.h"

#define PD_REPLAY_SHAKEN 3 /* number of shaken models */

typedef struct pd_replay_state pd_replay_state;

/* Lists the tensors of optimizer state in a checked trace, which must outlive *out. The caller frees *out.
 * PD_INVALID_ARGUMENT: a tensor belongs to no parameter or step, or it has no valid name for state; the error names it.
 * PD_NO_MEMORY. */
int pd_replay_state_new(pd_replay_state **out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err);
void pd_replay_state_free(pd_replay_state *state); /* accepts NULL */
/* Returns true if optimizer state was recorded, but not its noise. Then the noise must be measured with shaken
 * models. */
bool pd_replay_state_wants_noise(const pd_replay_state *state);
/* Flips the last bit of n numbers. Numbers that are 0 or not finite do not change. If `way` is 0, flips it in all of
 * them. Otherwise flips it in about half of them; each `way` chooses another half. */
void pd_replay_shake(float *at, int64_t n, uint64_t way);

/* Compares the model's state with all tensors of state that were recorded after this step. A matrix root that the model
 * begins to use in a later step is compared in that later step. `shaken` has PD_REPLAY_SHAKEN entries: the shaken
 * models, or NULL if there are none. PD_NOT_FOUND: the model has no such slot. PD_OUT_OF_RANGE: the slot has another
 * size. PD_INVALID_ARGUMENT: a quantized tensor lacks its bucket sizes. PD_NO_MEMORY: out of memory. */
int pd_replay_state_compare(pd_replay_state *state, const pd_model *model, const pd_model *const *shaken, int64_t step,
                            pd_error *err);

/* Returns the worst error over all comparisons of optimizer state so far. */
pd_state_verdict pd_replay_state_verdict(const pd_replay_state *state);

#endif
