/* first_order.h - hyperparameters and functions that the element-wise optimizers which follow torch.optim share
 * (adam.c, rmsprop.c ...). Pure functions.
 *
 * Each of these optimizers is a table of hyperparameters, a list of slots and one loop over a range of elements. The
 * loop reads and writes each array (weights, gradient and slots) once.
 *
 * The order of operations is torch's, and each operation is rounded to float32. Factors that are the same for all
 * elements are computed in double, as in torch.
 *
 * An option that holds for a whole step selects between two values inside the loop. This costs nothing, because memory
 * bandwidth limits the loop. Only an option that adds a slot, and so another array, has a loop of its own. */
#ifndef PD_FIRST_ORDER_H
#define PD_FIRST_ORDER_H

#include <math.h>

#include "cpu.h"
#include "optimizer_ops.h"

/* Entries for tables of hyperparameters, with the names that they have in torch.optim. A beta, the decay factor of a
 * moving average, must be below 1. */
#define PD_HYPER_LR(preset)                                                                                            \
    {                                                                                                                  \
        "lr", PD_REAL, preset, 0, INFINITY, NULL, "learning rate", true, false                                         \
    }
#define PD_HYPER_BETA(i, preset, of)                                                                                   \
    {                                                                                                                  \
        "betas[" #i "]", PD_REAL, preset, 0, 1 - 0x1p-53, NULL, "decay of " of, true, false                            \
    }
#define PD_HYPER_EPS(preset)                                                                                           \
    {                                                                                                                  \
        "eps", PD_REAL, preset, 0, INFINITY, NULL, "added to the denominator", true, false                             \
    }
#define PD_HYPER_L2                                                                                                    \
    {                                                                                                                  \
        "weight_decay", PD_REAL, 0, 0, INFINITY, NULL, "factor of the weights added to the gradient (L2 penalty)",     \
            true, false                                                                                                \
    }
#define PD_HYPER_DECAY(preset, help)                                                                                   \
    {                                                                                                                  \
        "weight_decay", PD_REAL, preset, 0, INFINITY, NULL, help, true, false                                          \
    }
#define PD_HYPER_DECOUPLED(preset)                                                                                     \
    {                                                                                                                  \
        "decoupled_weight_decay", PD_FLAG, preset, 0, 1, NULL,                                                         \
            "weight_decay shrinks the weights and leaves the gradient alone", true, false                              \
    }
#define PD_HYPER_MAXIMIZE                                                                                              \
    {                                                                                                                  \
        "maximize", PD_FLAG, 0, 0, 1, NULL, "add the gradient instead of subtracting it", true, false                  \
    }
#define PD_HYPER_STORED(name, of)                                                                                      \
    {                                                                                                                  \
        name, PD_CHOICE, 0, 0, 0, "float32|bfloat16", "storage type of " of, false, false                              \
    }

/* Returns the storage type that a value of PD_HYPER_STORED chooses. */
static inline pd_storage pd_stored_as(double choice)
{
    return choice != 0 ? PD_STORE_BF16 : PD_STORE_F32;
}

/* The range of elements that one thread processes in one call: n elements, with pointers to their weights before the
 * step, their gradients and their new weights. */
typedef struct pd_run {
    int64_t n;
    const float *before, *gradient;
    float *after;
} pd_run;

PD_INLINE pd_run pd_run_of(const pd_unit *unit)
{
    return (pd_run){ unit->n, unit->before + unit->first, unit->gradient + unit->first, unit->after + unit->first };
}

PD_INLINE float *pd_run_slot(const pd_unit *unit, int slot)
{
    return unit->slot[slot] + unit->first;
}

/* How the options maximize and weight_decay change a gradient g and a weight w: g <- sign g + l2 w (if l2 is not 0),
 * and w <- keep w. l2 is the factor of a penalty that is added to the gradient; keep is the factor of decoupled weight
 * decay. */
typedef struct pd_pull {
    float sign, l2, keep;
} pd_pull;

static inline pd_pull pd_pull_of(double lr, double weight_decay, bool decoupled, bool maximize)
{
    return (pd_pull){ maximize ? -1.0f : 1.0f, decoupled ? 0.0f : (float)weight_decay,
                      decoupled ? (float)(1 - lr * weight_decay) : 1.0f };
}

/* Returns the gradient of one weight, changed as the options maximize and weight_decay say. */
PD_INLINE float pd_pulled(pd_pull pull, float gradient, float weight)
{
    float g = pull.sign * gradient, decayed = g + pull.l2 * weight;
    return pull.l2 != 0 ? decayed : g;
}

/* Returns the larger of two numbers; NaN if one of them is NaN. */
PD_INLINE float pd_larger(float a, float b)
{
    return ((b > a) | (b != b)) ? b : a;
}
/* Returns the sign of x as 1, -1 or 0; 0 for NaN, as torch.sign does. */
PD_INLINE float pd_sign(float x)
{
    return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

/* Returns 1 - beta^count. Dividing by it corrects the bias of a moving average that began with zero. */
static inline double pd_bias(double beta, int64_t count)
{
    return 1 - pow(beta, (double)count);
}

#endif
