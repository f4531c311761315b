/* mars - the optimizer MARS (arXiv:2411.10438): AdamW or Lion on a gradient of less variance, which is the gradient
 * plus a multiple of its change since the last step. Names, defaults and order of operations are those of its authors'
 * code (AGI-Arena/MARS, with is_approx, which takes the last step's gradient as it was). For a matrix with the weights
 * w and the gradient g, with the name of the stored state on the right (count: number of the step, from 1):
 *
 *     c = (g - l) gamma beta1 / (1 - beta1) + g;   c <- c / |c| if |c| > 1
 *     m <- beta1 m + (1 - beta1) c                              stored as exp_avg
 *     v <- beta2 v + (1 - beta2) c c                            stored as exp_avg_sq
 *     x <- max(x, v)                                            only with amsgrad, as max_exp_avg_sq; else x is v
 *     w <- w - lr (weight_decay w + m / ((sqrt(x) / sqrt(1 - beta2^count) + eps) (1 - beta1^count)))
 *     l <- g                                                    stored as last_grad
 *
 * With mars_type = mars-lion: w <- w - lr (weight_decay w + sign(m)), and no v. Unless optimize_1d is set, parameters
 * that are no matrices step by AdamW, with c = g and hyperparameters of their own (lr_1d). As in the authors' code,
 * lr_1d belongs to the lr that was declared, and follows lr in proportion. If the declared lr is a schedule or 0, lr_1d
 * is the rate itself.
 *
 * A step takes two passes over memory, since |c| is the norm of a whole parameter. The second one computes c again. */
#include "first_order.h"
#include "kernels.h"

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    AMSGRAD,
    GAMMA,
    MARS_TYPE,
    OPTIMIZE_1D,
    LR_1D,
    BETA1_1D,
    BETA2_1D,
    WEIGHT_DECAY_1D,
    LAST_GRAD_DTYPE
};
enum { LAST_GRAD, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };
/* number of elements computed at a time, so that c is still in the cache when it is squared */
enum { TILE = 1024 };

#define BETA_1D(i, preset, of)                                                                                         \
    {                                                                                                                  \
        "betas_1d[" #i "]", PD_REAL, preset, 0, 1 - 0x1p-53, NULL, "betas[" #i "] of " of, true, false                 \
    }
#define OTHERS "parameters that are no matrices"

static const pd_hyper mars_hypers[] = {
    [LR] = PD_HYPER_LR(3e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.95, "the corrected gradient's average"),
    [BETA2] = PD_HYPER_BETA(1, 0.99, "the squared corrected gradient's average"),
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(0, "factor of the weights added to the direction"),
    [AMSGRAD] = { "amsgrad", PD_FLAG, 0, 0, 1, NULL, "divide by the largest average of the squared gradient so far",
                  false, false },
    [GAMMA] = { "gamma", PD_REAL, 0.025, 0, INFINITY, NULL, "strength of the correction; 0: none", true, false },
    [MARS_TYPE] = { "mars_type", PD_CHOICE, 0, 0, 0, "mars-adamw|mars-lion", "how matrices step", false, false },
    [OPTIMIZE_1D] = { "optimize_1d", PD_FLAG, 0, 0, 1, NULL, OTHERS " step as matrices do, and not by AdamW", false,
                      false },
    [LR_1D] = { "lr_1d", PD_REAL, 3e-3, 0, INFINITY, NULL,
                "learning rate of " OTHERS "; follows lr in proportion, unless the rule's lr is a schedule", true,
                false },
    [BETA1_1D] = BETA_1D(0, 0.9, OTHERS),
    [BETA2_1D] = BETA_1D(1, 0.95, OTHERS),
    [WEIGHT_DECAY_1D] = { "weight_decay_1d", PD_REAL, 0.1, 0, INFINITY, NULL, "weight_decay of " OTHERS, true, false },
    [LAST_GRAD_DTYPE] = PD_HYPER_STORED("last_grad_dtype", "the last step's gradient"),
    { .name = NULL },
};

/* What a parameter's declaration decides. */
typedef struct kind {
    bool mars, lion, amsgrad; /* mars: it steps as matrices do */
    double
        rate_1d; /* factor of lr_1d by which it becomes a multiple of lr: 1 / the declared lr; 0: lr_1d is the rate */
} kind;

static int mars_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    const bool mars = plan->shape.rank == 2 || h[OPTIMIZE_1D] != 0,
               follows = h[LR] > 0 && (declaration->hypers.scheduled >> LR & 1) == 0;
    const kind k = { mars, mars && h[MARS_TYPE] != 0, h[AMSGRAD] != 0, follows ? 1 / h[LR] : 0 };
    int rc = pd_plan_slots(plan, (const char *const[]){ "last_grad", "exp_avg", k.lion ? NULL : "exp_avg_sq",
                                                        k.amsgrad ? "max_exp_avg_sq" : NULL, NULL });

    (void)stats, (void)err;
    *(kind *)plan->own = k;
    if (rc == PD_OK) plan->slots[LAST_GRAD].storage = pd_stored_as(h[LAST_GRAD_DTYPE]);
    return rc;
}

typedef struct factors {
    float change, norm, beta1, gain1, beta2, gain2, root, eps, bias, rate, decay;
} factors;

static factors factors_of(const pd_unit *unit)
{
    const kind *k = unit->plan->own;
    const double *h = unit->hyper, beta1 = h[k->mars ? BETA1 : BETA1_1D], beta2 = h[k->mars ? BETA2 : BETA2_1D],
                 rate_1d = k->rate_1d > 0 ? h[LR] * (h[LR_1D] * k->rate_1d) : h[LR_1D];

    return (factors){
        .change = k->mars ? (float)(h[GAMMA] * (beta1 / (1 - beta1))) : 0.0f,
        .norm = 1,
        .beta1 = (float)beta1,
        .gain1 = (float)(1 - beta1),
        .beta2 = (float)beta2,
        .gain2 = (float)(1 - beta2),
        .root = (float)(1 / sqrt(pd_bias(beta2, unit->count))),
        .eps = (float)h[EPS],
        .bias = (float)pd_bias(beta1, unit->count),
        .rate = (float)-(k->mars ? h[LR] : rate_1d),
        .decay = (float)h[k->mars ? WEIGHT_DECAY : WEIGHT_DECAY_1D],
    };
}

/* Returns the corrected gradient c before it is clipped. */
PD_INLINE float corrected(factors f, float gradient, float last)
{
    return (gradient - last) * f.change + gradient;
}

PD_CLONES(void, correct_tile, (float *restrict c, const float *gradient, const float *last, int64_t n, factors f),
          (c, gradient, last, n, f))
{
    for (int64_t i = 0; i < n; i++) c[i] = corrected(f, gradient[i], last[i]);
}

static void correct(const pd_unit *unit)
{
    const pd_run r = pd_run_of(unit);
    const factors f = factors_of(unit);
    const float *last = pd_run_slot(unit, LAST_GRAD);
    float c[TILE];

    for (int64_t i = 0; i < r.n; i += TILE) {
        int64_t n = r.n - i < TILE ? r.n - i : TILE;
        correct_tile(c, r.gradient + i, last + i, n, f);
        unit->partial[0] += pd_sum_squares(c, n);
    }
}

static bool has_no_norm(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)hyper, (void)count;
    return !((const kind *)plan->own)->mars;
}

/* Computes the new weights and the state of a range of elements. The callers pass the options as constants, so the loop
 * has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool lion, bool amsgrad)
{
    const pd_run r = pd_run_of(unit);
    float *last = pd_run_slot(unit, LAST_GRAD), *m = pd_run_slot(unit, EXP_AVG),
          *v = lion ? NULL : pd_run_slot(unit, EXP_AVG_SQ),
          *largest = amsgrad ? pd_run_slot(unit, MAX_EXP_AVG_SQ) : NULL;

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = r.gradient[i], c = corrected(f, g, last[i]) / f.norm,
              average = f.beta1 * m[i] + f.gain1 * c, u;
        last[i] = g;
        m[i] = average;
        if (lion) {
            u = pd_sign(average);
        } else {
            float square = f.beta2 * v[i] + f.gain2 * c * c;
            v[i] = square;
            if (amsgrad) largest[i] = square = pd_larger(largest[i], square);
            u = average / ((sqrtf(square) * f.root + f.eps) * f.bias);
        }
        r.after[i] = w + f.rate * (f.decay * w + u);
    }
}

PD_CLONES(void, plain, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false, false);
}
PD_CLONES(void, amsgrad, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false, true);
}
PD_CLONES(void, lion, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, true, false);
}

static void update(const pd_unit *unit)
{
    const kind *k = unit->plan->own;
    const float norm = (float)sqrt(unit->total[0][0]);
    factors f = factors_of(unit);

    if (k->mars && norm > 1) f.norm = norm;
    (k->lion ? lion : k->amsgrad ? amsgrad : plain)(unit, f);
}

const pd_optimizer_ops pd_mars = {
    .name = "mars",
    .about = "AdamW or Lion on variance-reduced gradients (arXiv:2411.10438)",
    .hypers = mars_hypers,
    .plan = mars_plan,
    .own_bytes = sizeof(kind),
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "correct", .kind = PD_RANGES, .run = correct, .fold = { PD_FOLD_SUM }, .skip = has_no_norm },
                { .name = "update", .kind = PD_RANGES, .run = update } },
};
