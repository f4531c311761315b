/* lamb - the optimizer LAMB for large batches (arXiv:1904.00962): Adam's direction, with a length in proportion to the
 * norm of the parameter's weights. For a parameter with the weights w and the gradient g, with the name of the stored
 * state on the right (count: number of the step, from 1; |w|: norm of w):
 *
 *     m <- beta1 m + (1 - beta1) g                              stored as exp_avg; without grad_averaging: beta1 m + g
 *     v <- beta2 v + (1 - beta2) g g                            stored as exp_avg_sq
 *     u = m / (1 - beta1^count) / (sqrt(v) / sqrt(1 - beta2^count) + eps) + weight_decay w
 *     r = |w| / |u|                                             the trust ratio
 *     w <- w - lr r u
 *
 * Without bias_correction, u is computed without the divisors 1 - beta1^count and sqrt(1 - beta2^count).
 *
 * The trust ratio r is 1 if either norm is 0. With trust_clip it is at most 1. If weight_decay is 0, it is 1, unless
 * always_adapt is set.
 *
 * Names and defaults are those on which timm's Lamb and apex's FusedLAMB agree. (apex calls always_adapt use_nvlamb;
 * only timm has trust_clip.) Both implementations also clip the gradients' global norm. Here the job's option
 * clip_global_norm does that.
 *
 * A step takes two passes over memory, because the norms of the whole parameter are needed before any weight moves. The
 * first pass keeps u in the memory of the new weights. To compute u again from m and v would move as many bytes, and
 * take a square root and three divisions an element, which take longer than memory does on AVX2. */
#include "first_order.h"
#include "kernels.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, BIAS_CORRECTION, GRAD_AVERAGING, TRUST_CLIP, ALWAYS_ADAPT };
enum { EXP_AVG, EXP_AVG_SQ, DIRECTION };
/* indices of the sums that the first pass over memory reports: of the squares of the weights, and of the direction u */
enum { WEIGHTS, UPDATE };
/* number of elements computed at a time, so that they are still in the cache when they are squared */
enum { TILE = 1024 };

static const pd_hyper lamb_hypers[] = {
    [LR] = PD_HYPER_LR(1e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.9, "the gradient's average"),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [EPS] = PD_HYPER_EPS(1e-6),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(1e-2, "factor of the weights added to the direction"),
    [BIAS_CORRECTION] = { "bias_correction", PD_FLAG, 1, 0, 1, NULL,
                          "correct the bias of the averages in the first steps", true, false },
    [GRAD_AVERAGING] = { "grad_averaging", PD_FLAG, 1, 0, 1, NULL,
                         "multiply the gradient by 1 - betas[0] before it is added to the average", true, false },
    [TRUST_CLIP] = { "trust_clip", PD_FLAG, 0, 0, 1, NULL, "limit the ratio of the norms to 1", true, false },
    [ALWAYS_ADAPT] = { "always_adapt", PD_FLAG, 0, 0, 1, NULL, "use the ratio of the norms also if weight_decay is 0",
                       true, false },
    { .name = NULL },
};

static int lamb_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const pd_slot_spec direction = {
        .name = "direction", .number = -1, .shape = plan->shape, .temporary = true, .in_after = true
    };
    int rc = pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", NULL });

    (void)declaration, (void)stats, (void)err;
    if (rc == PD_OK) rc = pd_plan_slot(plan, &direction);
    return rc < 0 ? rc : PD_OK;
}

typedef struct factors {
    float beta1, gain1, beta2, gain2, eps, bias, root, decay;
} factors;

static factors factors_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    const bool corrected = h[BIAS_CORRECTION] != 0;

    return (factors){
        .beta1 = (float)h[BETA1],
        .gain1 = h[GRAD_AVERAGING] != 0 ? (float)(1 - h[BETA1]) : 1.0f,
        .beta2 = (float)h[BETA2],
        .gain2 = (float)(1 - h[BETA2]),
        .eps = (float)h[EPS],
        .decay = (float)h[WEIGHT_DECAY],
        .bias = corrected ? (float)pd_bias(h[BETA1], unit->count) : 1.0f,
        .root = corrected ? (float)sqrt(pd_bias(h[BETA2], unit->count)) : 1.0f,
    };
}

PD_INLINE float direction(factors f, float m, float v, float w)
{
    float u = m / f.bias / (sqrtf(v) / f.root + f.eps), decayed = u + f.decay * w;
    return f.decay != 0 ? decayed : u;
}

/* Updates m and v, the moving averages of the gradient and of its square. u receives the direction of the step. */
PD_CLONES(void, average_tile,
          (float *restrict u, float *m, float *v, const float *before, const float *gradient, int64_t n, factors f),
          (u, m, v, before, gradient, n, f))
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i], average = f.beta1 * m[i] + f.gain1 * g, square = f.beta2 * v[i] + f.gain2 * g * g;
        m[i] = average;
        v[i] = square;
        u[i] = direction(f, average, square, before[i]);
    }
}

static void average(const pd_unit *unit)
{
    const pd_run r = pd_run_of(unit);
    const factors f = factors_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ), *u = pd_run_slot(unit, DIRECTION);

    for (int64_t i = 0; i < r.n; i += TILE) {
        int64_t n = r.n - i < TILE ? r.n - i : TILE;
        average_tile(u + i, m + i, v + i, r.before + i, r.gradient + i, n, f);
        unit->partial[WEIGHTS] += pd_sum_squares(r.before + i, n);
        unit->partial[UPDATE] += pd_sum_squares(u + i, n);
    }
}

/* Returns the trust ratio, by which the length of the step is multiplied. squares[] has the sums of the squares of the
 * weights and of the direction. A sum that is NaN counts as 0. */
static double trust(const double *hyper, const double *squares)
{
    double ratio = squares[WEIGHTS] > 0 && squares[UPDATE] > 0 ? sqrt(squares[WEIGHTS]) / sqrt(squares[UPDATE]) : 1;

    if (hyper[WEIGHT_DECAY] == 0 && hyper[ALWAYS_ADAPT] == 0) return 1;
    return hyper[TRUST_CLIP] != 0 && ratio > 1 ? 1 : ratio;
}

/* Computes the new weights. `after` may be `before`, or the memory of the direction u. */
PD_CLONES(void, pass, (float *after, const float *before, const float *u, float ratio, float lr, int64_t n),
          (after, before, u, ratio, lr, n))
{
#pragma GCC ivdep /* arrays that overlap are identical, so the loop may be vectorized */
    for (int64_t i = 0; i < n; i++) after[i] = before[i] - lr * (ratio * u[i]);
}

static void update(const pd_unit *unit)
{
    const pd_run r = pd_run_of(unit);

    pass(r.after, r.before, pd_run_slot(unit, DIRECTION), (float)trust(unit->hyper, unit->total[0]),
         (float)unit->hyper[LR], r.n);
}

const pd_optimizer_ops pd_lamb = {
    .name = "lamb",
    .about = "layer-wise adaptive moments for large batches (arXiv:1904.00962)",
    .hypers = lamb_hypers,
    .plan = lamb_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "average", .kind = PD_RANGES, .run = average, .fold = { PD_FOLD_SUM, PD_FOLD_SUM } },
                { .name = "update", .kind = PD_RANGES, .run = update } },
};
