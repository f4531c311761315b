/* scalable_shampoo_move.h - the last pass of a step of scalable_shampoo: momenta and weights. Pure functions; any
 * thread. */
#ifndef PD_SCALABLE_SHAMPOO_MOVE_H
#define PD_SCALABLE_SHAMPOO_MOVE_H

#include <stdbool.h>

#include "graft.h"

/* The arguments of the last pass of a step over n elements. The pass reads gradient and direction, updates both
 * momenta and then the weights. */
typedef struct scalable_move {
    pd_graft graft;
    bool own_direction; /* the parameter has a preconditioned direction; false: the graft's is used, `direction` is
                         * NULL */
    bool nesterov, decays;
    int64_t n;
    float *after; /* receives the weights; may be the memory of `before` or `direction` */
    const float *before, *gradient;
    const float *diagonal; /* the graft's diagonal statistics, updated in this step; NULL: it has none */
    const float *direction;
    /* The momenta of the preconditioned direction and of the graft's. With PD_GRAFT_SIGN diagonal_momentum is NULL,
     * and `momentum` is that of the chosen direction. */
    float *momentum, *diagonal_momentum;
    float length; /* factor that gives the direction the length of the graft's step */
    float beta1, gain, weight_decay;
    float run;  /* 1: the step uses the preconditioned direction; 0: the graft's */
    float rate; /* minus the learning rate */
} scalable_move;

void pd_scalable_move(const scalable_move *m);

#endif
