/* kron_move.h - passes of the optimizer kron over contiguous elements: the update of the momentum, and the move of
 * the weights. Pure functions; any thread. */
#ifndef PD_KRON_MOVE_H
#define PD_KRON_MOVE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_kron_momentum {
    /* X receives the momentum, corrected for its bias. mu is the momentum, which is updated in place; NULL: there is no
     * momentum, and X receives the gradient. */
    float *X, *mu;
    const float *gradient;
    int64_t n;
    /* the momentum's constants b1, 1 - b1 and 1 - b1^t in step t */
    float keep, gain, divisor;
    /* whether the product of `keep` and mu is rounded to bfloat16 */
    bool rounds_product;
} pd_kron_momentum;

/* Updates the momentum, and fills X with the momentum corrected for its bias. Returns the sum of the absolute values in
 * X. */
double pd_kron_follow(const pd_kron_momentum *m);
/* The arrays and constants with which a step moves n weights: after = before + rate (u / clip + decay before), where u
 * is the update. `after` may be the same memory as `before` or `u`. `update`, unless NULL, receives after - before. */
typedef struct pd_kron_step {
    float *after, *update;
    const float *before, *u;
    int64_t n;
    float clip, decay, rate;
} pd_kron_step;
void pd_kron_move(const pd_kron_step *s);

#endif
