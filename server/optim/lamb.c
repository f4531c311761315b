/* lamb - Adam's direction with a length in proportion to the parameter's own, for large batches (arXiv:1904.00962):
 *
 *     m <- beta1 m + (1 - beta1) g                              exp_avg; g whole without grad_averaging
 *     v <- beta2 v + (1 - beta2) g g                            exp_avg_sq
 *     u = m / (1 - beta1^count) / (sqrt(v) / sqrt(1 - beta2^count) + eps) + weight_decay w      without the divisors unless bias_correction
 *     r = |w| / |u|; 1 where either norm is 0; at most 1 with trust_clip; 1 where weight_decay is 0, unless always_adapt
 *     w <- w - lr r u
 *
 * Names, defaults and the rule for weight_decay 0 are those on which timm's Lamb and apex's FusedLAMB agree (apex says use_nvlamb for always_adapt);
 * trust_clip is timm's. Their clipping of the gradients' global norm is not the optimizer's business here. Two passes over memory, since the norms of
 * the whole parameter come before any weight moves; the second computes u anew, which costs less than to write and read it. */
#include "first_order.h"
#include "kernels.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, BIAS_CORRECTION, GRAD_AVERAGING, TRUST_CLIP, ALWAYS_ADAPT };
enum { EXP_AVG, EXP_AVG_SQ };
enum { WEIGHTS, UPDATE };               /* partials of `average`: sums of squares */
enum { TILE = 1024 };                   /* elements whose u is squared while it is in the cache */

static const pd_hyper lamb_hypers[] = {
    [LR]              = PD_HYPER_LR(1e-3),
    [BETA1]           = PD_HYPER_BETA(0, 0.9, "the gradient's average"),
    [BETA2]           = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [EPS]             = PD_HYPER_EPS(1e-6),
    [WEIGHT_DECAY]    = PD_HYPER_DECAY(1e-2, "factor of the weights added to the direction"),
    [BIAS_CORRECTION] = { "bias_correction", PD_FLAG, 1, 0, 1, NULL, "divide the averages by what they lack in the first steps", true, false },
    [GRAD_AVERAGING]  = { "grad_averaging", PD_FLAG, 1, 0, 1, NULL, "the gradient enters its average times 1 - betas[0], not whole", true, false },
    [TRUST_CLIP]      = { "trust_clip", PD_FLAG, 0, 0, 1, NULL, "the ratio of the norms is at most 1", true, false },
    [ALWAYS_ADAPT]    = { "always_adapt", PD_FLAG, 0, 0, 1, NULL, "the ratio of the norms also where weight_decay is 0", true, false },
    { .name = NULL },
};

static int lamb_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    (void)declaration;
    (void)fact;
    (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", NULL });
}

typedef struct factors { float beta1, gain1, beta2, gain2, eps, bias, root, decay; } factors;

static factors factors_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    const bool corrected = h[BIAS_CORRECTION] != 0;

    return (factors){
        .beta1 = (float)h[BETA1], .gain1 = h[GRAD_AVERAGING] != 0 ? (float)(1 - h[BETA1]) : 1.0f,
        .beta2 = (float)h[BETA2], .gain2 = (float)(1 - h[BETA2]), .eps = (float)h[EPS], .decay = (float)h[WEIGHT_DECAY],
        .bias  = corrected ? (float)pd_bias(h[BETA1], unit->count) : 1.0f,
        .root  = corrected ? (float)sqrt(pd_bias(h[BETA2], unit->count)) : 1.0f,
    };
}

PD_INLINE float direction(factors f, float m, float v, float w)
{
    float u = m / f.bias / (sqrtf(v) / f.root + f.eps), decayed = u + f.decay * w;
    return f.decay != 0 ? decayed : u;
}

/* n <= TILE elements of the averages; u gets the direction. */
PD_CLONES static void average_tile(float *restrict u, float *m, float *v, const float *before, const float *gradient, int64_t n, factors f)
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
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ), u[TILE];

    for (int64_t i = 0; i < r.n; i += TILE) {
        int64_t n = r.n - i < TILE ? r.n - i : TILE;
        average_tile(u, m + i, v + i, r.before + i, r.gradient + i, n, f);
        unit->partial[WEIGHTS] += pd_sum_squares(r.before + i, n);
        unit->partial[UPDATE] += pd_sum_squares(u, n);
    }
}

/* Norms that are not numbers count as 0. */
static double trust(const double *hyper, const double *squares)
{
    double ratio = squares[WEIGHTS] > 0 && squares[UPDATE] > 0 ? sqrt(squares[WEIGHTS]) / sqrt(squares[UPDATE]) : 1;

    if (hyper[WEIGHT_DECAY] == 0 && hyper[ALWAYS_ADAPT] == 0) return 1;
    return hyper[TRUST_CLIP] != 0 && ratio > 1 ? 1 : ratio;
}

PD_CLONES static void pass(const pd_unit *unit, factors f, float ratio, float lr)
{
    const pd_run r = pd_run_of(unit);
    const float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ);

#pragma GCC ivdep                                       /* after may be before itself, never a shifted part of it */
    for (int64_t i = 0; i < r.n; i++) r.after[i] = r.before[i] - lr * (ratio * direction(f, m[i], v[i], r.before[i]));
}

static void move(const pd_unit *unit)
{
    pass(unit, factors_of(unit), (float)trust(unit->hyper, unit->total[0]), (float)unit->hyper[LR]);
}

const pd_row pd_lamb = {
    .name   = "lamb",
    .about  = "layer-wise adaptive moments for large batches (arXiv:1904.00962)",
    .hypers = lamb_hypers,
    .plan   = lamb_plan,
    .phases = { { .name = "average", .kind = PD_RANGES, .run = average, .fold = { PD_FOLD_SUM, PD_FOLD_SUM } },
                { .name = "move", .kind = PD_RANGES, .run = move } },
};
