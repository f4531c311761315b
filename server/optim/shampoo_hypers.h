/* shampoo_hypers.h - indices of the hyperparameters of the optimizer shampoo, and of the words that they may have as
 * values. */
#ifndef PD_SHAMPOO_HYPERS_H
#define PD_SHAMPOO_HYPERS_H

#include "paramd/tensor.h"

/* number of entries of the list inv_root_override: one for each number of dimensions, from 0 on */
#define ROOT_ORDERS (PD_MAX_RANK + 1)

/* Indices of shampoo's hyperparameters, in the order of its table of hyperparameters. */
enum {
    LR,
    BETA1,
    BETA2,
    BETA3,
    EPSILON,
    MOMENTUM,
    DAMPENING,
    WEIGHT_DECAY,
    MAX_DIM,
    FREQUENCY,
    START_STEP,
    ROOT_OVERRIDE,
    EXPONENT_MULTIPLIER = ROOT_OVERRIDE + ROOT_ORDERS,
    NESTEROV,
    BIAS_CORRECTION,
    DECOUPLED_DECAY,
    MERGE_DIMS,
    GRAFTING,
    GRAFTING_BETA2,
    GRAFTING_EPSILON,
    PRECONDITIONER_DTYPE,
    PRECISION,
    FACTOR_DTYPE,
    INVERSE_DTYPE,
    FILTERED_DTYPE,
    MOMENTUM_DTYPE,
    GRAFTING_DTYPE,
    COMPUTATION_DTYPE,
    PROTECTED_EIGH,
    ROOT_METHOD,
    ROOT_TOLERANCE,
    ROOT_ITERATIONS,
    ROOT_ITERATION_ORDER,
    TRAINERS,
    COMMUNICATION_DTYPE,
    COMMUNICATE_PARAMS,
    TRACK_RESIDUALS,
    PYTORCH_COMPILE,
    ROOT_DELAY,
    ROOT_RETRIES
};
enum { GRAFT_NONE, GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_ADAM };
/* element types that the hyperparameters of precision_config may choose */
enum { STORE_FLOAT32, STORE_BFLOAT16, STORE_FLOAT16, STORE_FLOAT64 };
/* values of the hyperparameter preconditioner_dtype */
enum { OLD_NONE, OLD_FLOAT32, OLD_FLOAT64 };
enum { SEND_FLOAT32, SEND_FLOAT16, SEND_BFLOAT16, SEND_DEFAULT }; /* values of the hyperparameter communication_dtype */
enum { ROOT_EIGEN, ROOT_NEWTON, ROOT_HIGHER_ORDER, ROOT_TRACKED };

#endif
