/* lion - the optimizer Lion: steps by the sign of an interpolated momentum (arXiv:2302.06675). Names and defaults are
 * those of its authors' code. For each weight w, its gradient g and its momentum m:
 *
 *     g <- -g if maximize
 *     w <- w - lr weight_decay w
 *     w <- w - lr sign(beta1 m + (1 - beta1) g)
 *     m <- beta2 m + (1 - beta2) g                              stored as exp_avg */
#include "first_order.h"

enum { LR, BETA1, BETA2, WEIGHT_DECAY, MAXIMIZE };
enum { EXP_AVG };

static const pd_hyper lion_hypers[] = {
    [LR] = PD_HYPER_LR(1e-4),
    [BETA1] = { "betas[0]", PD_REAL, 0.9, 0, 1 - 0x1p-53, NULL, "weight of the momentum in the direction", true,
                false },
    [BETA2] = PD_HYPER_BETA(1, 0.99, "the momentum"),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(0, "factor of lr by which the weights shrink (decoupled)"),
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int lion_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "exp_avg", NULL });
}

typedef struct factors {
    pd_pull pull;
    float beta1, gain1, beta2, gain2, lr;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), momentum = m[i];
        m[i] = f.beta2 * momentum + f.gain2 * g;
        r.after[i] = f.pull.keep * w - f.lr * pd_sign(f.beta1 * momentum + f.gain1 * g);
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;

    pass(unit, (factors){
                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], true, h[MAXIMIZE] != 0),
                   .beta1 = (float)h[BETA1],
                   .gain1 = (float)(1 - h[BETA1]),
                   .beta2 = (float)h[BETA2],
                   .gain2 = (float)(1 - h[BETA2]),
                   .lr = (float)h[LR],
               });
}

const pd_optimizer_ops pd_lion = {
    .name = "lion",
    .about = "evolved sign momentum (arXiv:2302.06675)",
    .hypers = lion_hypers,
    .plan = lion_plan,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
