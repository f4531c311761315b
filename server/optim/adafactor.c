/* adafactor - the optimizer Adafactor (arXiv:1804.04235) as T5X has it (t5x/adafactor.py, 2022).
 *
 * Adafactor divides the gradient by the root of its second moment, a running average of squared gradients. The moment
 * of a matrix is factored: instead of all its elements, only the mean over each row and the mean over each column are
 * kept. Each dimension of a parameter has a rule that says its role: ROW, COLUMN, BATCH (it counts independent tensors)
 * or NONE (it is not factored). A step with the gradient G changes the weights W so:
 *
 *     t     = step - step_offset + 1;   b = 1 - t^(-decay_rate)        step counts from 0, or from the job's start_step
 *     alpha = learning_rate max(rms(W), epsilon2), the maximum limited to max_parameter_scale;  learning_rate alone
 *         without multiply_by_parameter_scale
 *     s     = G^2 + epsilon1
 *     v_row <- b v_row + (1 - b) mean of s over COLUMN;   v_col <- b v_col + (1 - b) mean of s over ROW
 *     y     = G (v_row / mean of v_row over ROW)^(-1/2) v_col^(-1/2)
 *     v     <- b v + (1 - b) s;   y = G v^(-1/2)                                 where nothing is factored
 *     y     <- y / max(1, rms(y) / clipping_threshold)
 *     u     = alpha y;   m <- beta1 m + (1 - beta1) u, u = m                     m only if beta1 is set
 *     W     <- (1 - decay) W - u
 *
 * rms is the root mean square over all dimensions except BATCH: each tensor of a stack has its own scale and clip
 * factor.
 *
 * Arithmetic is float32; sums of many numbers are float64. With param_dtype=bfloat16, T5X computes squares, scale,
 * decayed weights and weights in bfloat16. So these values are rounded to bfloat16 here.
 *
 * T5X warns if it ignores a rule that the user has written. Here the plan of the parameter has a note for the user
 * instead. */
#include "adafactor_move.h"
#include "adafactor_plan.h"
#include "adafactor_sums.h"

#define LARGEST_INT 2147483647

static const pd_hyper adafactor_hypers[] = {
    [LEARNING_RATE] = { "learning_rate", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, INFINITY, "none",
                        "learning rate, required; with multiply_by_parameter_scale relative to the parameter's root "
                        "mean square",
                        true, false },
    [FACTORED] = { "factored", PD_FLAG, 1, 0, 1, NULL,
                   "factor the second moments of matrices; no: never, and factor_map must not be set", false, false },
    [BY_SCALE] = { "multiply_by_parameter_scale", PD_TEXT, 0, 0, 0, NULL,
                   "yes (default), no, or a rule by name: ['bias|scale':no,'.*':yes]", false, false },
    [BETA1] = { "beta1", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, 1, "none",
                "decay of the momentum, below 1; none: no momentum", true, false },
    [DECAY_RATE] = { "decay_rate", PD_REAL, 0.8, 0, INFINITY, NULL,
                     "the second moment decays by 1 - t^(-decay_rate) in step t; above 0", true, false },
    [STEP_OFFSET] = { "step_offset", PD_INT, 0, -LARGEST_INT, LARGEST_INT, NULL,
                      "subtracted from the step number in decay_rate's formula; at most the job's start_step", false,
                      false },
    [CLIPPING] = { "clipping_threshold", PD_REAL, 1, 0, INFINITY, "none",
                   "largest root mean square of the update, before it is multiplied by the learning rate", true,
                   false },
    [WEIGHT_DECAY] = { "weight_decay_rate", PD_REAL, 0, 0, INFINITY, "none",
                       "share of the weights that a step subtracts, not multiplied by the learning rate", true, false },
    [MIN_DIM] = { "min_dim_size_to_factor", PD_INT, 128, 0, LARGEST_INT, NULL,
                  "smallest side of a matrix that HEURISTIC factors", false, false },
    [EPSILON1] = { "epsilon1", PD_REAL, 1e-30, 0, INFINITY, NULL, "added to each squared gradient", true, false },
    [EPSILON2] = { "epsilon2", PD_REAL, 1e-3, 0, INFINITY, NULL, "least scale of a parameter", true, false },
    [DTYPE_MOMENTUM] = { "dtype_momentum", PD_CHOICE, DTYPE_FLOAT32, 0, 1, "float32|bfloat16",
                         "storage type of the momentum", false, false },
    [FACTOR_MAP] = { "factor_map", PD_TEXT, 0, 0, 0, NULL,
                     "factor rules by parameter name, the first match counts: "
                     "['attention/query':(ROW,COLUMN,COLUMN),'.*':HEURISTIC]",
                     false, false },
    [LOGICAL_RULES] = { "logical_factor_rules", PD_TEXT, 0, 0, 0, NULL,
                        "factor rules by the names of a parameter's axes, instead of factor_map: standard, or "
                        "[embed:ROW,mlp:COLUMN,layers:BATCH]",
                        false, false },
    [DECAY_EXPONENT] = { "weight_decay_rate_lr_exponent", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, INFINITY, "none",
                         "the weight decay is weight_decay_rate (or 1) times learning_rate to this power; 0: "
                         "weight_decay_rate alone",
                         true, false },
    [GLOBAL_CLIP] = { "global_norm_clip_threshold", PD_REAL, 0, 0, INFINITY, "none",
                      "largest common norm of the gradients of all parameters of the rule", false, false },
    [MAX_SCALE] = { "max_parameter_scale", PD_REAL, 0, 0, INFINITY, "none", "largest scale of a parameter", true,
                    false },
    [SKIP_NAN] = { "skip_nan_updates", PD_FLAG, 0, 0, 1, NULL,
                   "elements of weights or state that would become NaN keep their old values", true, false },
    [PARAM_DTYPE] = { "param_dtype", PD_CHOICE, DTYPE_FLOAT32, 0, 1, "float32|bfloat16",
                      "bfloat16: weights are rounded to bfloat16, as upstream's bfloat16 parameters are", false,
                      false },
    { .name = NULL },
};

static const pd_fact adafactor_facts[] = { [FACT_HAS_AXES] = { "has_axes", PD_FOLD_MAX }, { .name = NULL } };

static int check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;
    bool had = !pd_adafactor_is_none(declared->value[BETA1]), has = !pd_adafactor_is_none(h[BETA1]);

    if (pd_adafactor_is_none(h[LEARNING_RATE]) && !pd_adafactor_is_none(declared->value[LEARNING_RATE]))
        return pd_fail(err, PD_INVALID_ARGUMENT, "learning_rate of adafactor: expected a number, got none");
    if (has && !(h[BETA1] >= 0 && h[BETA1] < 1))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "beta1 of adafactor: expected none, or a number from 0 to below 1, got %g", h[BETA1]);
    if (!(h[DECAY_RATE] > 0))
        return pd_fail(err, PD_INVALID_ARGUMENT, "decay_rate of adafactor: expected a number above 0, got %g",
                       h[DECAY_RATE]);
    if (had != has)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "adafactor: beta1 cannot change %s none while the job runs: it decides what state there is",
                       has ? "from" : "to");
    return PD_OK;
}

static double clip_norm(const double *hyper)
{
    return hyper[GLOBAL_CLIP];
}

static bool is_unfactored(const pd_plan *plan, const double *hyper, int64_t count)
{
    const pd_adafactor_own *own = plan->own;

    (void)hyper;
    (void)count;
    return !own->factored;
}

/* Returns whether a step skips the phase "lengths", the pass over a parameter that sums the squares of its updates for
 * clipping. It is skipped without clipping. It is also skipped if the second moment is not factored, because the phase
 * "sums" then computes the same sums together with the moment. */
static bool needs_no_lengths(const pd_plan *plan, const double *hyper, int64_t count)
{
    return hyper[CLIPPING] == 0 || is_unfactored(plan, hyper, count);
}

const pd_optimizer_ops pd_adafactor = {
    .name = "adafactor",
    .about = "Adafactor with factored second moments (T5X, arXiv:1804.04235)",
    .hypers = adafactor_hypers,
    .facts = adafactor_facts,
    .survey = pd_adafactor_survey,
    .check = check,
    .plan = pd_adafactor_plan,
    .own_bytes = sizeof(pd_adafactor_own),
    .clip_norm = clip_norm,
    .gradient_most = PD_PRODUCT_MOST,
    .phases = { { .name = "sums", .kind = PD_BLOCKS, .run = pd_adafactor_sums },
                { .name = "moments", .kind = PD_BLOCKS, .run = pd_adafactor_moments, .skip = is_unfactored },
                { .name = "means", .kind = PD_WHOLE, .run = pd_adafactor_means, .skip = is_unfactored },
                { .name = "lengths", .kind = PD_BLOCKS, .run = pd_adafactor_lengths, .skip = needs_no_lengths },
                { .name = "limits", .kind = PD_WHOLE, .run = pd_adafactor_limits },
                { .name = "move", .kind = PD_BLOCKS, .run = pd_adafactor_move } },
};
