/* ademamix - the optimizer AdEMAMix (arXiv:2409.03137): AdamW with a second, very slow average of the gradient. Names,
 * defaults and order of operations are those of its authors' code (apple/ml-ademamix). For each weight w and its
 * gradient g, with the name of the stored state on the right (count: number of the step, from 1):
 *
 *     f <- beta1 f + (1 - beta1) g                              stored as exp_avg_fast; f is g if beta1 = 0
 *     s <- b s + (1 - b) g                                      stored as exp_avg_slow
 *     v <- beta2 v + (1 - beta2) g g                            stored as exp_avg_sq
 *     u = (f / (1 - beta1^count) + a s) / (sqrt(v) / sqrt(1 - beta2^count) + eps)
 *     w <- w - lr (u + weight_decay w)
 *
 * a and b are alpha and beta3, or less while they warm up. The slow average is not corrected for its beginning with
 * zeros. Without beta1 there is no exp_avg_fast, so beta1 cannot change to or from 0 while a job runs. */
#include "first_order.h"

enum { LR, BETA1, BETA2, BETA3, ALPHA, BETA3_WARMUP, ALPHA_WARMUP, EPS, WEIGHT_DECAY, MU_DTYPE };
enum { SLOW, SQ, FAST };

#define WARMUP(name, of)                                                                                               \
    {                                                                                                                  \
        name, PD_INT, 0, 0, 0x1p53, "none", "number of steps in which " of, true, false                                \
    }

static const pd_hyper ademamix_hypers[] = {
    [LR] = PD_HYPER_LR(1e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.9, "the fast average of the gradient; 0: the gradient itself, and no slot"),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [BETA3] = PD_HYPER_BETA(2, 0.9999, "the slow average of the gradient"),
    [ALPHA] = { "alpha", PD_REAL, 2, 0, INFINITY, NULL, "weight of the slow average in the direction", true, false },
    [BETA3_WARMUP] = WARMUP("beta3_warmup", "betas[2] rises from betas[0]: its half-life grows evenly"),
    [ALPHA_WARMUP] = WARMUP("alpha_warmup", "alpha rises evenly from 0"),
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(0, "factor of the weights added to the direction"),
    [MU_DTYPE] = PD_HYPER_STORED("mu_dtype", "exp_avg_fast; the slow average would lose its changes"),
    { .name = NULL },
};

static int ademamix_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    if ((declared->value[BETA1] != 0) == (now->value[BETA1] != 0)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "ademamix: betas[0] cannot change from %g to %g while the job runs: only between values above 0",
                   declared->value[BETA1], now->value[BETA1]);
}

static int ademamix_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    const bool fast = h[BETA1] != 0;
    int rc =
        pd_plan_slots(plan, (const char *const[]){ "exp_avg_slow", "exp_avg_sq", fast ? "exp_avg_fast" : NULL, NULL });

    (void)stats, (void)err;
    if (rc == PD_OK && fast) plan->slots[FAST].storage = pd_stored_as(h[MU_DTYPE]);
    return rc;
}

/* Returns the half-life of a moving average, less one step. The authors add 1e-8, so that a beta of 0 has one. */
static double half_life(double beta)
{
    return log(0.5) / log(beta + 1e-8) - 1;
}

/* Returns the decay factor of the slow average in this step. */
static double slow_beta(const double *h, int64_t count)
{
    const double part = (double)count / h[BETA3_WARMUP];

    if (!((double)count < h[BETA3_WARMUP])) return h[BETA3];
    return pow(0.5, 1 / ((1 - part) * half_life(h[BETA1]) + part * half_life(h[BETA3]) + 1));
}

/* Returns the weight of the slow average in this step. */
static double slow_weight(const double *h, int64_t count)
{
    return (double)count < h[ALPHA_WARMUP] ? h[ALPHA] * (double)count / h[ALPHA_WARMUP] : h[ALPHA];
}

typedef struct factors {
    float beta1, gain1, beta2, gain2, beta3, gain3, alpha, bias, root, eps, decay, lr;
} factors;

static factors factors_of(const pd_unit *unit)
{
    const double *h = unit->hyper, beta3 = slow_beta(h, unit->count);

    return (factors){
        .beta1 = (float)h[BETA1],
        .gain1 = (float)(1 - h[BETA1]),
        .beta2 = (float)h[BETA2],
        .gain2 = (float)(1 - h[BETA2]),
        .beta3 = (float)beta3,
        .gain3 = (float)(1 - beta3),
        .alpha = (float)slow_weight(h, unit->count),
        .bias = (float)pd_bias(h[BETA1], unit->count),
        .root = (float)sqrt(pd_bias(h[BETA2], unit->count)),
        .eps = (float)h[EPS],
        .decay = (float)h[WEIGHT_DECAY],
        .lr = (float)h[LR],
    };
}

/* Computes the new weights and averages of a range of elements, in one pass over memory. The callers pass `has_fast`
 * as a constant, so the loop has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool has_fast)
{
    const pd_run r = pd_run_of(unit);
    float *slow = pd_run_slot(unit, SLOW), *v = pd_run_slot(unit, SQ),
          *fast = has_fast ? pd_run_slot(unit, FAST) : NULL;

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = r.gradient[i], m = g, s = f.beta3 * slow[i] + f.gain3 * g,
              square = f.beta2 * v[i] + f.gain2 * g * g;
        if (has_fast) fast[i] = m = f.beta1 * fast[i] + f.gain1 * g;
        slow[i] = s;
        v[i] = square;
        float u = (m / f.bias + f.alpha * s) / (sqrtf(square) / f.root + f.eps), decayed = u + f.decay * w;
        r.after[i] = w - f.lr * (f.decay != 0 ? decayed : u);
    }
}

PD_CLONES(void, two_averages, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, true);
}
PD_CLONES(void, one_average, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false);
}

static void update(const pd_unit *unit)
{
    (unit->plan->n_slots > FAST ? two_averages : one_average)(unit, factors_of(unit));
}

const pd_optimizer_ops pd_ademamix = {
    .name = "ademamix",
    .about = "AdamW with a second, slow average of the gradient (arXiv:2409.03137)",
    .hypers = ademamix_hypers,
    .check = ademamix_check,
    .plan = ademamix_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
