/* first_order.h - what the element-wise optimizers that follow torch.optim share. Pure.
 *
 * Each of them (adam.c, rmsprop.c ...) is a table of hyperparameters, a list of slots and one loop over the
 * elements of a range, which reads and writes every stream once. They keep torch's order of operations, each
 * rounded to float32; what is the same for all elements is computed in double, as torch does. Choices that hold
 * for a whole step are selections between values inside the loop, not branches around it: the loop is bound by
 * memory. Only what changes the streams themselves (a slot more) is a loop of its own. */
#ifndef PD_FIRST_ORDER_H
#define PD_FIRST_ORDER_H

#include <math.h>

#include "clones.h"
#include "row.h"

/* Entries of the tables of hyperparameters, in torch's words. A beta is below 1. */
#define PD_HYPER_LR(preset)           { "lr", PD_REAL, preset, 0, INFINITY, NULL, "learning rate", true, false }
#define PD_HYPER_BETA(i, preset, of)  { "betas[" #i "]", PD_REAL, preset, 0, 1 - 0x1p-53, NULL, "how much of " of " stays from step to step", true, false }
#define PD_HYPER_EPS(preset)          { "eps", PD_REAL, preset, 0, INFINITY, NULL, "added to the denominator", true, false }
#define PD_HYPER_L2                   { "weight_decay", PD_REAL, 0, 0, INFINITY, NULL, "factor of the weights added to the gradient (L2 penalty)", true, false }
#define PD_HYPER_DECAY(preset, help)  { "weight_decay", PD_REAL, preset, 0, INFINITY, NULL, help, true, false }
#define PD_HYPER_DECOUPLED(preset)    { "decoupled_weight_decay", PD_FLAG, preset, 0, 1, NULL, "weight_decay shrinks the weights and leaves the gradient alone", true, false }
#define PD_HYPER_MAXIMIZE             { "maximize", PD_FLAG, 0, 0, 1, NULL, "climb along the gradient instead of descending", true, false }

/* Slots of these names (ends with NULL), shaped as the parameter, zero at first. PD_NO_MEMORY. */
int pd_plan_slots(pd_plan *plan, const char *const *names);
/* A slot of one number. */
int pd_plan_number(pd_plan *plan, const char *name, float fill);

/* A unit's elements of its streams. */
typedef struct pd_run {
    int64_t      n;
    const float *before, *gradient;
    float       *after;
} pd_run;

PD_INLINE pd_run pd_run_of(const pd_unit *unit)
{
    return (pd_run){ unit->n, unit->before + unit->first, unit->gradient + unit->first, unit->after + unit->first };
}

PD_INLINE float *pd_run_slot(const pd_unit *unit, int slot) { return unit->slot[slot] + unit->first; }

/* What maximize and weight_decay make of gradient and weights: g <- sign g + l2 w (left alone where l2 is 0), w <-
 * keep w. */
typedef struct pd_pull { float sign, l2, keep; } pd_pull;

static inline pd_pull pd_pull_of(double lr, double weight_decay, bool decoupled, bool maximize)
{
    return (pd_pull){ maximize ? -1.0f : 1.0f, decoupled ? 0.0f : (float)weight_decay, decoupled ? (float)(1 - lr * weight_decay) : 1.0f };
}

PD_INLINE float pd_pulled(pd_pull pull, float gradient, float weight)
{
    float g = pull.sign * gradient, decayed = g + pull.l2 * weight;
    return pull.l2 != 0 ? decayed : g;
}

/* The larger; NaN where either is. */
PD_INLINE float pd_larger(float a, float b) { return ((b > a) | (b != b)) ? b : a; }
/* 1, -1 or 0; 0 also of NaN, as torch.sign. */
PD_INLINE float pd_sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }

/* 1 - beta^count: what a moving average that began with zero is divided by. */
static inline double pd_bias(double beta, int64_t count) { return 1 - pow(beta, (double)count); }

#endif
