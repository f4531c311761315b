/* delayed_nesterov - the outer optimizer of asynchronous DiLoCo: descends by every gradient at once, and applies
 * Nesterov momentum once in a period of steps (arXiv:2401.09135, algorithm 3). N is the period, k the number of steps
 * before this one, c the spread. For each weight w, its gradient g, and the slots a and b, which begin with 0:
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     a <- a + g                                                grad_sum
 *     in the last step of a period, where N divides k + 1:
 *         b <- momentum b + a / N                               momentum_buffer
 *         w <- w - lr ((1 - c N + c) momentum b + g / N)
 *         a <- 0
 *     in the other steps:
 *         w <- w - lr (c momentum b + g / N)
 *
 * Each product, sum and quotient is rounded to float32, in the order written, from the left to the right. So is the
 * arithmetic of factors that are the same for all weights: the other optimizers compute such factors in double.
 *
 * The default rate is for the default period of 1, which means Nesterov momentum in each step. It is a tenth of
 * DiLoCo's 0.7, as the asyncdiloco notebook has it for plain asynchronous merges. If the period is the number of
 * workers, DiLoCo's rate keeps its meaning, since each gradient is divided by the period.
 *
 * The period cannot change while a job runs, since a would then be a sum over another number of steps than N. */
#include "first_order.h"

enum { LR, MOMENTUM, PERIOD, SPREAD, WEIGHT_DECAY, MAXIMIZE };
enum { GRAD_SUM, MOMENTUM_BUFFER };

/* The largest period: float32 holds all integers up to it. */
#define MOST_PERIOD 0x1p24

static const pd_hyper delayed_nesterov_hypers[] = {
    [LR] = PD_HYPER_LR(0.07),
    [MOMENTUM] = { "momentum", PD_REAL, 0.9, 0, INFINITY, NULL, "momentum factor", true, false },
    [PERIOD] = { "period", PD_INT, 1, 1, MOST_PERIOD, NULL,
                 "steps between momentum updates, and divisor of each gradient; at least the number of workers", false,
                 false },
    [SPREAD] = { "spread", PD_REAL, 0, 0, 1, NULL,
                 "share of the momentum that each step but the period's last applies; at most 1/period", true, false },
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

/* Checks that the spread is at most 1/period. Both sides are rounded to float32, like the spread in a step. So 1/3 is
 * accepted for a period of 3, whether a worker has computed it in float32 or in double. */
static int delayed_nesterov_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *value = now->value;

    (void)declared;
    if ((float)value[SPREAD] <= (float)(1 / value[PERIOD])) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "delayed_nesterov: spread must be at most 1/period, got spread %.9g and period %g, 1/period %.9g",
                   value[SPREAD], value[PERIOD], 1 / value[PERIOD]);
}

static int delayed_nesterov_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "grad_sum", "momentum_buffer", NULL });
}

typedef struct factors {
    pd_pull pull;
    float lr, momentum, period;
    float applied; /* the factor of the momentum buffer in the step */
} factors;

/* Updates optimizer state and weights in one pass over memory. The callers pass `last`, which is set in the last step
 * of a period, as a constant, so the loop has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool last)
{
    const pd_run r = pd_run_of(unit);
    float *a = pd_run_slot(unit, GRAD_SUM), *b = pd_run_slot(unit, MOMENTUM_BUFFER);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), sum = a[i] + g, momentum = b[i];
        if (last) b[i] = momentum = f.momentum * momentum + sum / f.period;
        a[i] = last ? 0 : sum;
        r.after[i] = w - f.lr * (f.applied * momentum + g / f.period);
    }
}

PD_CLONES(void, gather, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false);
}
PD_CLONES(void, accelerate, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, true);
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;
    const float momentum = (float)h[MOMENTUM], period = (float)h[PERIOD], spread = (float)h[SPREAD];
    const bool last = unit->count % (int64_t)h[PERIOD] == 0;
    const factors f = {
        .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0),
        .lr = (float)h[LR],
        .momentum = momentum,
        .period = period,
        .applied = (last ? 1 - spread * period + spread : spread) * momentum,
    };

    (last ? accelerate : gather)(unit, f);
}

const pd_optimizer_ops pd_delayed_nesterov = {
    .name = "delayed_nesterov",
    .about = "Nesterov momentum once in a period of asynchronous merges (arXiv:2401.09135)",
    .hypers = delayed_nesterov_hypers,
    .check = delayed_nesterov_check,
    .plan = delayed_nesterov_plan,
    .gradient_most = PD_SQUARE_MOST, /* sums over the longest period stay finite, and so does the momentum */
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
