/* scalable_shampoo_move.h - the last pass of a step of scalable_shampoo, which updates momenta and weights. Pure
 * functions; any thread. */
#ifndef PD_SCALABLE_SHAMPOO_MOVE_H
#define PD_SCALABLE_SHAMPOO_MOVE_H

#include <stdbool.h>

#include "graft.h"

/* The arguments of the last pass of a step over n elements. The pass reads gradient and direction, updates both
 * momenta and then the weights. */
typedef struct scalable_move {
    pd_graft graft;
    /* Whether the parameter has a preconditioned direction. false: the direction of the graft
     * is used, and `direction` is NULL. */
    bool own_direction;
    bool nesterov, decays;
    int64_t n;
    float *after; /* receives the new weights; may be the memory of the old ones (`before`) or of `direction` */
    const float *before, *gradient;
    /* The diagonal statistics of the graft, already updated in this step. NULL: it has none. */
    const float *diagonal;
    const float *direction;
    /* Two momenta: `momentum` is that of the preconditioned direction, diagonal_momentum that of the direction of the
     * graft. With PD_GRAFT_SIGN there is only `momentum`, of whichever direction the step uses, and diagonal_momentum
     * is NULL. */
    float *momentum, *diagonal_momentum;
    /* Factor that gives the preconditioned direction the length of the step that the graft would take. */
    float length;
    float beta1, gain, weight_decay;
    /* 1: the step uses the preconditioned direction; 0: it uses that of the graft */
    float run;
    float rate; /* minus the learning rate */
} scalable_move;

void pd_scalable_move(const scalable_move *m);

#endif
