/* adam, adamw - the optimizers Adam and AdamW, computed as torch.optim.Adam and AdamW do it, from moving averages of
 * the gradient and of its square. For each weight w and its gradient g, with the name of the stored state on the right
 * (count: number of the step, from 1):
 *
 *     g <- -g if maximize
 *     g <- g + weight_decay w,  or, decoupled (AdamW's way):  w <- w - lr weight_decay w
 *     m <- beta1 m + (1 - beta1) g                              stored as exp_avg
 *     v <- beta2 v + (1 - beta2) g g                            stored as exp_avg_sq
 *     x <- max(x, v)                                            only with amsgrad, as max_exp_avg_sq; else x is v
 *     w <- w - lr / (1 - beta1^count) m / (sqrt(x) / sqrt(1 - beta2^count) + eps)
 *
 * adam and adamw differ only in their defaults. The option amsgrad adds max_exp_avg_sq to the state, so it cannot
 * change after the declaration of the parameter. */
#include "first_order.h"
#include "hyperball.h"

enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, AMSGRAD, MAXIMIZE, DECOUPLED, HYPERBALL };
enum { EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };

#define HYPERS(decay, decoupled)                                                                                       \
    [LR] = PD_HYPER_LR(1e-3), [BETA1] = PD_HYPER_BETA(0, 0.9, "the gradient's average"),                               \
    [BETA2] = PD_HYPER_BETA(1, 0.999, "the squared gradient's average"), [EPS] = PD_HYPER_EPS(1e-8),                   \
    [WEIGHT_DECAY] = PD_HYPER_DECAY(                                                                                   \
        decay, "factor of the weights added to the gradient, or, decoupled, of lr by which they shrink"),              \
    [AMSGRAD] = { "amsgrad", PD_FLAG, 0, 0, 1, NULL, "divide by the largest average of the squared gradient so far",   \
                  false,     false },                                                                                  \
    [MAXIMIZE] = PD_HYPER_MAXIMIZE, [DECOUPLED] = PD_HYPER_DECOUPLED(decoupled), [HYPERBALL] = PD_HYPER_HYPERBALL,     \
    { .name = NULL },

static const pd_hyper adam_hypers[] = { HYPERS(0, 0) };
static const pd_hyper adamw_hypers[] = { HYPERS(1e-2, 1) };

static int adam_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    bool amsgrad = declaration->hypers.value[AMSGRAD] != 0;
    int rc;

    (void)stats, (void)err;
    rc = pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", amsgrad ? "max_exp_avg_sq" : NULL, NULL });
    return rc == PD_OK ? pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY }) : rc;
}

typedef struct factors {
    pd_pull pull;
    float beta1, gain1, beta2, gain2, eps, root, rate;
} factors;

static factors factors_of(const pd_unit *unit)
{
    const double *h = unit->hyper;

    return (factors){
        .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], h[DECOUPLED] != 0, h[MAXIMIZE] != 0),
        .beta1 = (float)h[BETA1],
        .gain1 = (float)(1 - h[BETA1]),
        .beta2 = (float)h[BETA2],
        .gain2 = (float)(1 - h[BETA2]),
        .eps = (float)h[EPS],
        .root = (float)sqrt(pd_bias(h[BETA2], unit->count)),
        .rate = (float)(-h[LR] / pd_bias(h[BETA1], unit->count)),
    };
}

/* Computes the new weights and the averages of gradient and squared gradient for a range of elements, in one pass over
 * memory. The callers pass the option `amsgrad` as a constant, so the loop has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool amsgrad)
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ),
          *largest = amsgrad ? pd_run_slot(unit, MAX_EXP_AVG_SQ) : NULL;

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w);
        float average = f.beta1 * m[i] + f.gain1 * g, square = f.beta2 * v[i] + f.gain2 * g * g;
        m[i] = average;
        v[i] = square;
        if (amsgrad) largest[i] = square = pd_larger(largest[i], square);
        r.after[i] = f.pull.keep * w + f.rate * average / (sqrtf(square) / f.root + f.eps);
    }
}

PD_CLONES(void, plain, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, false);
}
PD_CLONES(void, amsgrad, (const pd_unit *unit, factors f), (unit, f))
{
    pass(unit, f, true);
}

static void update(const pd_unit *unit)
{
    (unit->hyper[AMSGRAD] != 0 ? amsgrad : plain)(unit, factors_of(unit));
}

const pd_optimizer_ops pd_adam = {
    .name = "adam",
    .about = "Adam (torch.optim.Adam)",
    .hypers = adam_hypers,
    .plan = adam_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};

const pd_optimizer_ops pd_adamw = {
    .name = "adamw",
    .about = "Adam with decoupled weight decay (torch.optim.AdamW)",
    .hypers = adamw_hypers,
    .plan = adam_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
