/* scalable_shampoo_move.h - the last pass of a step of scalable_shampoo. Pure; any thread. */
#ifndef PD_SCALABLE_SHAMPOO_MOVE_H
#define PD_SCALABLE_SHAMPOO_MOVE_H

#include <stdbool.h>

#include "graft.h"

/* The last pass of a step over n elements: from gradient and direction by both momenta to the weights. */
typedef struct scalable_move {
    pd_graft     graft;
    bool         own_direction;     /* else the direction is the graft's, and `direction` is NULL */
    bool         nesterov, decays;
    int64_t      n;
    float       *after;             /* may be `before`, or the memory of `direction` */
    const float *before, *gradient;
    const float *diagonal;          /* the graft's V, after its update; or NULL */
    const float *direction;
    /* the latter NULL with PD_GRAFT_SIGN: the one momentum then keeps what was chosen */
    float       *momentum, *diagonal_momentum;
    float        length;            /* of the graft over the direction's own */
    float        beta1, gain, weight_decay;
    float        run;               /* 1: the preconditioned direction is used, 0: the graft's */
    float        rate;              /* minus the learning rate */
} scalable_move;

void pd_scalable_move(const scalable_move *m);

#endif
