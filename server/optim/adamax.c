/* adamax - the optimizer Adamax, computed as torch.optim.Adamax does it: Adam with the largest recent gradient in place
 * of a mean square. For each weight w and its gradient g, with the name of the stored state on the right (count: number
 * of the step, from 1):
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     m <- beta1 m + (1 - beta1) g                              stored as exp_avg
 *     u <- max(beta2 u, |g| + eps)                              stored as exp_inf
 *     w <- w - lr / (1 - beta1^count) m / u */
#include "first_order.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { EXP_AVG, EXP_INF };

static const pd_hyper adamax_hypers[] = {
    [LR] = PD_HYPER_LR(2e-3),
    [BETA1] = PD_HYPER_BETA(0, 0.9, "the gradient's average"),
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the largest gradient"),
    [EPS] = { "eps", PD_REAL, 1e-8, 0, INFINITY, NULL, "added to the absolute value of the gradient", true, false },
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int adamax_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_inf", NULL });
}

typedef struct factors {
    pd_pull pull;
    float beta1, gain1, beta2, eps, rate;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *u = pd_run_slot(unit, EXP_INF);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w);
        float average = f.beta1 * m[i] + f.gain1 * g, largest = pd_larger(f.beta2 * u[i], fabsf(g) + f.eps);
        m[i] = average;
        u[i] = largest;
        r.after[i] = w + f.rate * average / largest;
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;

    pass(unit, (factors){
                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0),
                   .beta1 = (float)h[BETA1],
                   .gain1 = (float)(1 - h[BETA1]),
                   .beta2 = (float)h[BETA2],
                   .eps = (float)h[EPS],
                   .rate = (float)(-h[LR] / pd_bias(h[BETA1], unit->count)),
               });
}

const pd_optimizer_ops pd_adamax = {
    .name = "adamax",
    .about = "Adam by the infinity norm (torch.optim.Adamax)",
    .hypers = adamax_hypers,
    .plan = adamax_plan,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
