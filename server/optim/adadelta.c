/* adadelta - the optimizer Adadelta, computed as torch.optim.Adadelta does it. The length of a step follows from
 * running averages of squared gradients and of squared earlier steps. For each weight w and its gradient g, with the
 * name of the stored state on the right:
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     v <- rho v + (1 - rho) g g                                stored as square_avg
 *     d = sqrt(s + eps) / sqrt(v + eps) g                       change of the weight, before lr multiplies it
 *     s <- rho s + (1 - rho) d d                                stored as acc_delta
 *     w <- w - lr d */
#include "first_order.h"

enum { LR, RHO, EPS, WEIGHT_DECAY, MAXIMIZE };
enum { SQUARE_AVG, ACC_DELTA };

static const pd_hyper adadelta_hypers[] = {
    [LR] = { "lr", PD_REAL, 1, 0, INFINITY, NULL, "factor of each step", true, false },
    [RHO] = { "rho", PD_REAL, 0.9, 0, 1, NULL, "decay of the averages", true, false },
    [EPS] = { "eps", PD_REAL, 1e-6, 0, INFINITY, NULL, "added to both averages", true, false },
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int adadelta_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "square_avg", "acc_delta", NULL });
}

typedef struct factors {
    pd_pull pull;
    float rho, gain, eps, rate;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *v = pd_run_slot(unit, SQUARE_AVG), *s = pd_run_slot(unit, ACC_DELTA);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), square = f.rho * v[i] + f.gain * g * g;
        float delta = sqrtf(s[i] + f.eps) / sqrtf(square + f.eps) * g;
        v[i] = square;
        s[i] = f.rho * s[i] + f.gain * delta * delta;
        r.after[i] = w + f.rate * delta;
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;

    pass(unit, (factors){
                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0),
                   .rho = (float)h[RHO],
                   .gain = (float)(1 - h[RHO]),
                   .eps = (float)h[EPS],
                   .rate = (float)-h[LR],
               });
}

const pd_optimizer_ops pd_adadelta = {
    .name = "adadelta",
    .about = "Adadelta (torch.optim.Adadelta)",
    .hypers = adadelta_hypers,
    .plan = adadelta_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
