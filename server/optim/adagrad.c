/* adagrad - the optimizer Adagrad, computed as torch.optim.Adagrad does it: steps are divided by the root of the sum of
 * all squared gradients so far. For each weight w and its gradient g, with the name of the stored state on the right
 * (count: number of the step, from 1):
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     s <- s + g g                                              stored as sum; initial_accumulator_value at first
 *     w <- w - lr / (1 + (count - 1) lr_decay) g / (sqrt(s) + eps)
 *
 * The sum s gets its initial value when the parameter is declared. So initial_accumulator_value cannot change later. */
#include "first_order.h"

enum { LR, LR_DECAY, WEIGHT_DECAY, INITIAL, EPS, MAXIMIZE };
enum { SUM };

static const pd_hyper adagrad_hypers[] = {
    [LR] = PD_HYPER_LR(1e-2),
    [LR_DECAY] = { "lr_decay", PD_REAL, 0, 0, INFINITY, NULL, "lr is divided by 1 + (count - 1) lr_decay", true,
                   false },
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [INITIAL] = { "initial_accumulator_value", PD_REAL, 0, 0, INFINITY, NULL,
                  "initial value of the sum of squared gradients", false, false },
    [EPS] = PD_HYPER_EPS(1e-10),
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int adagrad_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = "sum",
                                                   .number = -1,
                                                   .shape = plan->shape,
                                                   .fill = (float)declaration->hypers.value[INITIAL] });

    (void)stats, (void)err;
    return slot < 0 ? slot : PD_OK;
}

typedef struct factors {
    pd_pull pull;
    float eps, rate;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *sum = pd_run_slot(unit, SUM);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), s = sum[i] + g * g;
        sum[i] = s;
        r.after[i] = w + f.rate * g / (sqrtf(s) + f.eps);
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;

    pass(unit, (factors){
                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0),
                   .eps = (float)h[EPS],
                   .rate = (float)(-h[LR] / (1 + (double)(unit->count - 1) * h[LR_DECAY])),
               });
}

const pd_optimizer_ops pd_adagrad = {
    .name = "adagrad",
    .about = "Adagrad (torch.optim.Adagrad)",
    .hypers = adagrad_hypers,
    .plan = adagrad_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
