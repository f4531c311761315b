/* asgd - stochastic gradient descent that also keeps the average of its weights, computed as torch.optim.ASGD does it.
 * For each weight w, its gradient g and its average x (count: number of the step, from 1; eta: learning rate of the
 * step; mu: share of the new w in x):
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     w <- (1 - lambd eta) w - eta g
 *     x <- w where mu is 1, else x + mu (w - x)                 stored as ax: the averaged weights, for users
 *     eta <- lr / (1 + lambd lr count)^alpha                    eta of the next step; lr in the first step
 *     mu  <- 1 / max(1, count - t0)                             mu of the next step; 1 in the first step */
#include "first_order.h"

enum { LR, LAMBD, ALPHA, T0, WEIGHT_DECAY, MAXIMIZE };
enum { AX, ETA, MU };

static const pd_hyper asgd_hypers[] = {
    [LR] = PD_HYPER_LR(1e-2),
    [LAMBD] = { "lambd", PD_REAL, 1e-4, -INFINITY, INFINITY, NULL, "decay of the weights and of the learning rate",
                true, false },
    [ALPHA] = { "alpha", PD_REAL, 0.75, -INFINITY, INFINITY, NULL, "power in the decay of the learning rate", true,
                false },
    [T0] = { "t0", PD_REAL, 1e6, -INFINITY, INFINITY, NULL, "step after which averaging of the weights begins", true,
             false },
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int asgd_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int rc = pd_plan_slots(plan, (const char *const[]){ "ax", NULL });

    (void)declaration, (void)stats, (void)err;
    if (rc == PD_OK) rc = pd_plan_number(plan, "eta", 0);
    return rc == PD_OK ? pd_plan_number(plan, "mu", 1) : rc;
}

typedef struct factors {
    pd_pull pull;
    float eta, mu;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *ax = pd_run_slot(unit, AX);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), moved = f.pull.keep * w - f.eta * g;
        float average = ax[i] + (moved - ax[i]) * f.mu;
        ax[i] = f.mu != 1 ? average : moved;
        r.after[i] = moved;
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;
    const float eta = unit->count == 1 ? (float)h[LR] : unit->slot[ETA][0];
    factors f = { pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0), eta, unit->slot[MU][0] };

    f.pull.keep = (float)(1 - h[LAMBD] * (double)eta);
    pass(unit, f);
}

static void advance(const pd_unit *unit)
{
    const double *h = unit->hyper, count = (double)unit->count;

    unit->slot[ETA][0] = (float)(h[LR] / pow(1 + h[LAMBD] * h[LR] * count, h[ALPHA]));
    unit->slot[MU][0] = (float)(1 / fmax(1, count - h[T0]));
}

const pd_optimizer_ops pd_asgd = {
    .name = "asgd",
    .about = "averaged stochastic gradient descent (torch.optim.ASGD)",
    .hypers = asgd_hypers,
    .plan = asgd_plan,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update },
                { .name = "advance", .kind = PD_WHOLE, .run = advance } },
    .grain = pd_grain_of_elements,
};
