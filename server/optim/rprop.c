/* rprop - steps by the sign of the gradient. Each element has its own step size, which grows while the sign stays the
 * same and shrinks when it changes, as in torch.optim.Rprop. w are the weights, g is the gradient, z the step size,
 * prev the gradient of the last step:
 *
 *     g <- -g if maximize
 *     p = g prev;   z <- z etas[1] where p > 0, z etas[0] where p < 0, else z       step_size: lr before the first step
 *     z <- at least step_sizes[0], at most step_sizes[1]
 *     g <- 0 where p < 0
 *     w <- w - sign(g) z;   prev <- g                                                   prev: 0 before the first step
 *
 * Use it with gradients of whole data sets: the sign of a small batch's gradient is mostly noise. lr only sets the step
 * size of a parameter's first step. */
#include <string.h>

#include "first_order.h"

enum { LR, ETA_MINUS, ETA_PLUS, STEP_MIN, STEP_MAX, MAXIMIZE };
enum { PREV, STEP_SIZE };

static const pd_hyper rprop_hypers[] = {
    [LR] = { "lr", PD_REAL, 1e-2, 0, INFINITY, NULL, "step size in the first step; no effect afterwards", true, false },
    [ETA_MINUS] = { "etas[0]", PD_REAL, 0.5, 0, 1, NULL, "factor of the step size if the gradient's sign has changed",
                    true, false },
    [ETA_PLUS] = { "etas[1]", PD_REAL, 1.2, 1, INFINITY, NULL,
                   "factor of the step size if the gradient's sign has stayed", true, false },
    [STEP_MIN] = { "step_sizes[0]", PD_REAL, 1e-6, -INFINITY, INFINITY, NULL, "smallest step size", true, false },
    [STEP_MAX] = { "step_sizes[1]", PD_REAL, 50, -INFINITY, INFINITY, NULL, "largest step size", true, false },
    [MAXIMIZE] = PD_HYPER_MAXIMIZE,
    { .name = NULL },
};

static int rprop_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    double minus = now->value[ETA_MINUS], plus = now->value[ETA_PLUS];

    (void)declared;
    if (minus > 0 && minus < 1 && plus > 1) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "rprop: expected 0 < etas[0] < 1 < etas[1], got %g and %g", minus, plus);
}

static int rprop_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slots(plan, (const char *const[]){ "prev", "step_size", NULL });
}

/* Returns x, or 0 if `gone`. Works on the bits of x: an ordinary condition would make the compiler put branches into
 * the loop that calls this function. */
PD_INLINE float unless(bool gone, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits &= (uint32_t)gone - 1;
    memcpy(&x, &bits, sizeof x);
    return x;
}

typedef struct factors {
    float sign, lr, minus, plus, least, most;
    bool first;
} factors;

PD_CLONES(void, pass, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *prev = pd_run_slot(unit, PREV), *size = pd_run_slot(unit, STEP_SIZE);

/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < r.n; i++) {
        float g = f.sign * r.gradient[i], product = g * prev[i], length = f.first ? f.lr : size[i];
        length *= product > 0 ? f.plus : product < 0 ? f.minus : 1.0f;
        length = length < f.least ? f.least : length;
        length = length > f.most ? f.most : length;
        g = unless(product < 0, g);
        prev[i] = g;
        size[i] = length;
        r.after[i] = r.before[i] - pd_sign(g) * length;
    }
}

static void update(const pd_unit *unit)
{
    const double *h = unit->hyper;

    pass(unit, (factors){
                   .sign = h[MAXIMIZE] != 0 ? -1.0f : 1.0f,
                   .lr = (float)h[LR],
                   .minus = (float)h[ETA_MINUS],
                   .plus = (float)h[ETA_PLUS],
                   .least = (float)h[STEP_MIN],
                   .most = (float)h[STEP_MAX],
                   .first = unit->count == 1,
               });
}

const pd_optimizer_ops pd_rprop = {
    .name = "rprop",
    .about = "resilient backpropagation (torch.optim.Rprop)",
    .hypers = rprop_hypers,
    .check = rprop_check,
    .plan = rprop_plan,
    .phases = { { .name = "update", .kind = PD_RANGES, .run = update } },
    .grain = pd_grain_of_elements,
};
