/* scalable_shampoo.h - indices of the hyperparameters of scalable_shampoo, and of the words that they may have as
 * values. */
#ifndef PD_SCALABLE_SHAMPOO_H
#define PD_SCALABLE_SHAMPOO_H

/* Indices of scalable_shampoo's hyperparameters, in the order of its table of hyperparameters. */
enum {
    LEARNING_RATE,
    BLOCK_SIZE,
    BETA1,
    BETA2,
    DIAGONAL_EPSILON,
    MATRIX_EPSILON,
    WEIGHT_DECAY,
    START_STEP,
    ROOT_INTERVAL,
    STATISTICS_INTERVAL,
    INTERPRET_SHAPES,
    GRAFT_TYPE,
    NESTEROV,
    EXPONENT_OVERRIDE,
    FAILURE_THRESHOLD,
    MOVING_AVERAGE,
    SKIP_SIZE,
    CLIP,
    MEMORY_REDUCTION,
    PRECISION,
    SHARDED,
    ROOT_METHOD,
    ROOT_DELAY,
    ROOT_RETRIES,
    PADDING_COUPLING,
    REDUCTION_SCOPE,
    DIAGONAL_DTYPE,
    NAN_ROOTS_LEAK
};
enum { GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_RMSPROP_NORMALIZED, GRAFT_SQRT_N, GRAFT_ADAGRAD_NORMALIZED };
enum { SCOPE_ALL, SCOPE_MOMENTUM };

#endif
