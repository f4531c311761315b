/* rmsprop - divides the gradient by the root mean square of recent gradients, as in torch.optim.RMSprop. w are the
 * weights, g is the gradient. The words at the right name the slot that a line updates:
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     v <- alpha v + (1 - alpha) g g                            square_avg
 *     a <- alpha a + (1 - alpha) g                              grad_avg, if centered; else a is 0
 *     d = g / (sqrt(v - a a) + eps)                             0 where v is infinite, since g g exceeds float32
 *     b <- momentum b + d                                       momentum_buffer, with momentum only; else b is d
 *     w <- w - lr b
 *
 * A parameter has a momentum buffer if and only if momentum is not 0. So a job may change momentum from step to step,
 * but not to or from 0. */
#include "first_order.h"

enum { LR, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED, MAXIMIZE };
/* index of the first tensor of state; momentum_buffer and then grad_avg follow it, if the parameter has them */
enum { SQUARE_AVG };

static const pd_hyper rmsprop_hypers[] = {
    [LR] = PD_HYPER_LR(1e-2),
    [ALPHA] = { "alpha", PD_REAL, 0.99, 0, INFINITY, NULL, "decay of the averages", true, false },
    [EPS] = PD_HYPER_EPS(1e-8),
    [WEIGHT_DECAY] = PD_HYPER_L2,
    [MOMENTUM] = { "momentum", PD_REAL, 0, 0, INFINITY, NULL, "momentum factor; 0: no momentum and no buffer", true,
                   false },
    [CENTERED] = { "centered", PD_FLAG, 0, 0, 1, NULL,
                   "divide by the deviation from the gradient's average, an estimate of the variance", false, false },
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int rmsprop_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    if ((declared->value[MOMENTUM] != 0) == (now->value[MOMENTUM] != 0)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "rmsprop: momentum cannot change from %g to %g while the job runs: only between values above 0",
                   declared->value[MOMENTUM], now->value[MOMENTUM]);
}

static int rmsprop_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const char *names[4] = { "square_avg" };
    int n = 1;

    (void)stats, (void)err;
    if (declaration->hypers.value[MOMENTUM] != 0) names[n++] = "momentum_buffer";
    if (declaration->hypers.value[CENTERED] != 0) names[n++] = "grad_avg";
    return pd_plan_slots(plan, names);
}

typedef struct factors {
    pd_pull pull;
    float alpha, gain, eps, momentum, rate;
} factors;

/* Updates optimizer state and weights in one pass over memory. Callers pass `momentum` and `centered` as constants, so
 * the compiled loop has no branches. */
PD_INLINE void pass(const pd_unit *unit, factors f, bool momentum, bool centered)
{
    const pd_run r = pd_run_of(unit);
    float *v = pd_run_slot(unit, SQUARE_AVG), *b = momentum ? pd_run_slot(unit, 1) : NULL,
          *a = centered ? pd_run_slot(unit, 1 + momentum) : NULL;

/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < r.n; i++) {
        float w = r.before[i], g = pd_pulled(f.pull, r.gradient[i], w), square = f.alpha * v[i] + f.gain * g * g, below;
        v[i] = square;
        if (centered) {
            float average = f.alpha * a[i] + f.gain * g;
            a[i] = average;
            square = square < INFINITY ? square - average * average : square;
        }
        below = sqrtf(square) + f.eps;
        if (momentum) {
            float buffer = f.momentum * b[i] + g / below;
            b[i] = buffer;
            r.after[i] = w + f.rate * buffer;
        } else {
            r.after[i] = w + f.rate * g / below;
        }
    }
}

#define PASS(name, momentum, centered)                                                                                 \
    PD_CLONES(void, name, (const pd_unit *unit, factors f), (unit, f))                                                 \
    {                                                                                                                  \
        pass(unit, f, momentum, centered);                                                                             \
    }

PASS(plain, false, false)
PASS(plain_centered, false, true)
PASS(with_momentum, true, false)
PASS(with_momentum_centered, true, true)

static void update(const pd_unit *unit)
{
    static void (*const passes[2][2])(const pd_unit *unit, factors f) = { { plain, plain_centered },
                                                                          { with_momentum, with_momentum_centered } };
    const double *h = unit->hyper;

    passes[h[MOMENTUM] != 0][h[CENTERED] != 0](unit,
                                               (factors){
                                                   .pull = pd_pull_of(h[LR], h[WEIGHT_DECAY], false, h[MAXIMIZE] != 0),
                                                   .alpha = (float)h[ALPHA],
                                                   .gain = (float)(1 - h[ALPHA]),
                                                   .eps = (float)h[EPS],
                                                   .momentum = (float)h[MOMENTUM],
                                                   .rate = (float)-h[LR],
                                               });
}

const pd_optimizer_ops pd_rmsprop = {
    .name = "rmsprop",
    .about = "RMSprop (torch.optim.RMSprop)",
    .hypers = rmsprop_hypers,
    .check = rmsprop_check,
    .plan = rmsprop_plan,
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
