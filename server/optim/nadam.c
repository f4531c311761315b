/* nadam - Adam with Nesterov momentum, as torch.optim.NAdam documents it. w are the weights, g is the gradient, mu the
 * momentum factor of the step, count the number of the step. The words at the right name the slot that a line updates:
 *
 *     g <- -g if maximize
 *     g <- g + weight_decay w,  or, decoupled:  w <- w - lr weight_decay w
 *     mu      = beta1 (1 - 0.96^(count momentum_decay) / 2),  mu_next the same at count + 1
 *     product <- product mu                                     mu_product: one number, 1 at first
 *     m <- beta1 m + (1 - beta1) g                              exp_avg
 *     v <- beta2 v + (1 - beta2) g g                            exp_avg_sq
 *     d = sqrt(v / (1 - beta2^count)) + eps
 *     w <- w - lr (1 - mu) / (1 - product) g / d - lr mu_next / (1 - product mu_next) m / d
 *
 * In PyTorch up to version 1.13, the product in the last term of the last line contains the mu of this step twice. The
 * option `mu_counted_twice` repeats this defect, so that recorded training runs of those versions can be reproduced. */
#include "first_order.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MOMENTUM_DECAY, DECOUPLED, MAXIMIZE, MU_TWICE };
enum { EXP_AVG, EXP_AVG_SQ, MU_PRODUCT };

static const pd_hyper nadam_hypers[] = {
    [LR] = PD_HYPER_LR(2e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.9, "the gradient's average"),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"),
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] =
        PD_HYPER_DECAY(0, "factor of the weights added to the gradient, or, decoupled, of lr by which they shrink"),
    [MOMENTUM_DECAY] = { "momentum_decay", PD_REAL, 4e-3, 0, INFINITY, NULL,
                         "speed at which the momentum factor grows from half of betas[0] to betas[0]", true, false },
    [DECOUPLED] = PD_HYPER_DECOUPLED(0),
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    [MU_TWICE] = { "mu_counted_twice", PD_FLAG, 0, 0, 1, NULL,
                   "repeat a defect of torch up to 1.13, to reproduce its runs", true, false },
    { .name = NULL },
};

static int nadam_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int rc = pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", NULL });

    (void)declaration, (void)stats, (void)err;
    return rc == PD_OK ? pd_plan_number(plan, "mu_product", 1) : rc;
}

static double momentum_at(const double *hyper, int64_t count)
{
    return hyper[BETA1] * (1 - 0.5 * pow(0.96, (double)count * hyper[MOMENTUM_DECAY]));
}

static void advance(const pd_unit *unit)
{
    unit->slot[MU_PRODUCT][0] *= (float)momentum_at(unit->hyper, unit->count);
}

typedef struct factors {
    pd_pull pull;
    float beta1, gain1, beta2, gain2, eps, bias, ahead, rate;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ);

/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w);
        float average = f.beta1 * m[i] + f.gain1 * g, square = f.beta2 * v[i] + f.gain2 * g * g,
              below = sqrtf(square / f.bias) + f.eps;
        m[i] = average;
        v[i] = square;
        r.after[i] = f.pull.keep * w + f.ahead * g / below + f.rate * average / below;
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper, mu = momentum_at(h, unit->count), next = momentum_at(h, unit->count + 1);
    const double product = (double)unit->slot[MU_PRODUCT][0],
                 product_next = product * (h[MU_TWICE] != 0 ? mu : 1) * next;

    pass(unit, (factors){
                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], h[DECOUPLED] != 0, h[MAXIMIZE] != 0),
                   .beta1 = (float)h[BETA1],
                   .gain1 = (float)(1 - h[BETA1]),
                   .beta2 = (float)h[BETA2],
                   .gain2 = (float)(1 - h[BETA2]),
                   .eps = (float)h[EPS],
                   .bias = (float)pd_bias(h[BETA2], unit->count),
                   .ahead = (float)(-h[LR] * (1 - mu) / (1 - product)),
                   .rate = (float)(-h[LR] * next / (1 - product_next)),
               });
}

const pd_optimizer_ops pd_nadam = {
    .name = "nadam",
    .about = "Adam with Nesterov momentum (torch.optim.NAdam)",
    .hypers = nadam_hypers,
    .plan = nadam_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "advance", .kind = PD_WHOLE, .run = advance },
                { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
