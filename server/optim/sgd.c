/* sgd - stochastic gradient descent as in torch.optim.SGD, with the same order of operations. w are the weights, g is
 * the gradient, b the momentum buffer:
 *
 *     g <- -g if maximize;   g <- g + weight_decay w
 *     b <- g in the first step, then momentum b + (1 - dampening) g        momentum_buffer, with momentum only
 *     g <- g + momentum b with nesterov, else b
 *     w <- w - lr g
 *
 * A parameter has a momentum buffer if and only if momentum is not 0. A job may change momentum from step to step (a
 * cyclic schedule), but not to or from 0: the buffer's first value would then depend on the step of the change. A
 * parameter without a gradient takes no step. */
#include <math.h>

#include "cpu.h"
#include "hyperball.h"

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE, HYPERBALL };

static const pd_hyper sgd_hypers[] = {
    [LR] = { "lr", PD_REAL, 1e-3, 0, INFINITY, NULL, "learning rate", true },
    [MOMENTUM] = { "momentum", PD_REAL, 0, 0, INFINITY, NULL, "momentum factor; 0: no momentum and no buffer", true },
    [DAMPENING] = { "dampening", PD_REAL, 0, -INFINITY, INFINITY, NULL, "dampening of the gradient in the momentum",
                    true },
    [WEIGHT_DECAY] = { "weight_decay", PD_REAL, 0, 0, INFINITY, NULL,
                       "factor of the weights added to the gradient (L2 penalty)", true },
    [NESTEROV] = { "nesterov", PD_FLAG, 0, 0, 1, NULL, "Nesterov momentum; needs momentum > 0 and dampening 0", true },
    [MAXIMIZE] = { "maximize", PD_FLAG, 0, 0, 1, NULL, "add the gradient instead of subtracting it", true },
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    { .name = NULL },
};

static int sgd_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *value = now->value;

    if (value[NESTEROV] != 0 && (value[MOMENTUM] <= 0 || value[DAMPENING] != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "sgd: nesterov needs momentum > 0 and dampening = 0, got momentum %g and dampening %g",
                       value[MOMENTUM], value[DAMPENING]);
    if ((declared->value[MOMENTUM] != 0) != (value[MOMENTUM] != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "sgd: momentum cannot change from %g to %g while the job runs: only between values above 0",
                       declared->value[MOMENTUM], value[MOMENTUM]);
    return PD_OK;
}

static int sgd_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int slot = 0;

    (void)stats, (void)err;
    if (declaration->hypers.value[MOMENTUM] != 0)
        slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = "momentum_buffer", .number = -1, .shape = plan->shape });
    return slot < 0 ? slot : pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY });
}

typedef struct factors {
    float lr, momentum, gain, weight_decay, sign;
} factors;
typedef enum buffer { NONE, FIRST, NEXT } buffer;

/* Updates momentum buffer and weights in one pass over memory. Callers pass `buf`, `nesterov` and `decay` as constants,
 * so the compiled loop has no branches. */
PD_INLINE void pass(float *after, const float *before, const float *gradient, float *restrict b, int64_t n, factors f,
                    buffer buf, bool nesterov, bool decay)
{
/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float w = before[i], g = f.sign * gradient[i];
        if (decay) g = g + f.weight_decay * w;
        if (buf == FIRST) b[i] = g;
        if (buf == NEXT) b[i] = f.momentum * b[i] + f.gain * g;
        if (buf != NONE) g = nesterov ? g + f.momentum * b[i] : b[i];
        after[i] = w - f.lr * g;
    }
}

#define PASS(name, buf, nesterov, decay)                                                                               \
    PD_CLONES(void, name,                                                                                              \
              (float *after, const float *before, const float *gradient, float *restrict b, int64_t n, factors f),     \
              (after, before, gradient, b, n, f))                                                                      \
    {                                                                                                                  \
        pass(after, before, gradient, b, n, f, buf, nesterov, decay);                                                  \
    }

PASS(plain, NONE, false, false)
PASS(plain_decay, NONE, false, true)
PASS(first, FIRST, false, false)
PASS(first_decay, FIRST, false, true)
PASS(first_nesterov, FIRST, true, false)
PASS(first_nesterov_decay, FIRST, true, true)
PASS(next, NEXT, false, false)
PASS(next_decay, NEXT, false, true)
PASS(next_nesterov, NEXT, true, false)
PASS(next_nesterov_decay, NEXT, true, true)

typedef void pass_function(float *after, const float *before, const float *gradient, float *restrict b, int64_t n,
                           factors f);

static void update(const pd_unit *unit)
{
    static pass_function *const passes[3][2][2] = {
        [NONE] = { { plain, plain_decay }, { plain, plain_decay } },
        [FIRST] = { { first, first_decay }, { first_nesterov, first_nesterov_decay } },
        [NEXT] = { { next, next_decay }, { next_nesterov, next_nesterov_decay } },
    };
    const double *h = unit->hyper;
    const factors f = { (float)h[LR], (float)h[MOMENTUM], (float)(1 - h[DAMPENING]), (float)h[WEIGHT_DECAY],
                        h[MAXIMIZE] != 0 ? -1.0f : 1.0f };
    buffer buf = h[MOMENTUM] == 0 ? NONE : unit->count == 1 ? FIRST : NEXT;
    float *b = buf == NONE ? NULL : unit->slot[0] + unit->first;

    passes[buf][h[NESTEROV] != 0][h[WEIGHT_DECAY] != 0](unit->after + unit->first, unit->before + unit->first,
                                                        unit->gradient + unit->first, b, unit->n, f);
}

const pd_optimizer_ops pd_sgd = {
    .name = "sgd",
    .about = "stochastic gradient descent with momentum (torch.optim.SGD)",
    .hypers = sgd_hypers,
    .check = sgd_check,
    .plan = sgd_plan,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
