/* scalable_shampoo.h - inside of the optimizer scalable_shampoo: shared by its two files, and by its test. */
#ifndef PD_SCALABLE_SHAMPOO_H
#define PD_SCALABLE_SHAMPOO_H

#include "graft.h"
#include "row.h"

/* Hyperparameters, in this order. */
enum {
    LEARNING_RATE, BLOCK_SIZE, BETA1, BETA2, DIAGONAL_EPSILON, MATRIX_EPSILON, WEIGHT_DECAY, START_STEP, ROOT_INTERVAL, STATISTICS_INTERVAL,
    INTERPRET_SHAPES, GRAFT_TYPE, NESTEROV, EXPONENT_OVERRIDE, FAILURE_THRESHOLD, MOVING_AVERAGE, SKIP_SIZE, CLIP, MEMORY_REDUCTION, PRECISION,
    SHARDED, ROOT_METHOD, ROOT_DELAY, ROOT_RETRIES, PADDING_COUPLING, REDUCTION_SCOPE, DIAGONAL_DTYPE, NAN_ROOTS_LEAK
};
enum { GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_RMSPROP_NORMALIZED, GRAFT_SQRT_N, GRAFT_ADAGRAD_NORMALIZED };
enum { SCOPE_ALL, SCOPE_MOMENTUM };

/* The last pass of a step over n elements: from gradient and direction by both momenta to the weights. */
typedef struct shampoo_move {
    pd_graft     graft;
    bool         own_direction;     /* else the direction is the graft's, and `direction` is NULL */
    bool         nesterov, decays;
    int64_t      n;
    float       *after;             /* may be `before`, or the memory of `direction` */
    const float *before, *gradient;
    const float *diagonal;          /* the graft's V, after its update; or NULL */
    const float *direction;
    float       *momentum, *diagonal_momentum;      /* the latter NULL with PD_GRAFT_SIGN: the one momentum then keeps what was chosen */
    float        length;            /* of the graft over the direction's own */
    float        beta1, gain, weight_decay;
    float        run;               /* 1: the preconditioned direction is used, 0: the graft's */
    float        rate;              /* minus the learning rate */
} shampoo_move;

void pd_shampoo_move(const shampoo_move *m);

#endif
