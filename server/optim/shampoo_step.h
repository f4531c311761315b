/* shampoo_step.h - the hyperparameters of the optimizer shampoo, the slots of a parameter, and the phases of a step. In
 * all functions h[] has the hyperparameters' values. Pure functions. */
#ifndef PD_SHAMPOO_STEP_H
#define PD_SHAMPOO_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "optimizer_ops.h"
#include "paramd/optim.h"
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
    ROOT_RETRIES,
    PRECONDITIONER,
    NORMALIZE,
    TRACE_EXPONENT,
    HYPERBALL
};
enum { GRAFT_NONE, GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_ADAM };
/* element types that the hyperparameters of precision_config may choose */
enum { STORE_FLOAT32, STORE_BFLOAT16, STORE_FLOAT16, STORE_FLOAT64 };
/* values of the hyperparameter preconditioner_dtype */
enum { OLD_NONE, OLD_FLOAT32, OLD_FLOAT64 };
enum { SEND_FLOAT32, SEND_FLOAT16, SEND_BFLOAT16, SEND_DEFAULT }; /* values of the hyperparameter communication_dtype */
enum { PRECONDITION_PLAIN, PRECONDITION_KL }; /* values of the hyperparameter preconditioner_config */
enum { ROOT_EIGEN, ROOT_NEWTON, ROOT_HIGHER_ORDER, ROOT_TRACKED };

/* Indices of a parameter's slots. -1: the parameter does not have this slot. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment;
    int factors, each; /* index of the first slot of the first factor; number of slots that each factor has */
} shampoo_layout;
/* the slots of one factor, as offsets from its first slot */
enum { FACTOR, INVERSE, BASIS };

shampoo_layout pd_shampoo_layout(const double *h);
int pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which);
/* returns whether the factors are kept in float64 */
bool pd_shampoo_factors_are_wide(const double *h);
bool pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h); /* returns the first step that uses Shampoo's direction */

/* A block that was copied out of its parameter into contiguous memory: the shape of the copy, and a pd_block that
 * covers all of it. */
typedef struct shampoo_box {
    pd_shape shape;
    pd_block block;
} shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* Sizes of the parts of a thread's scratch memory for one block, in floats. 0: the part is not needed. */
typedef struct shampoo_scratch {
    /* size of a copy of the gradient of a block, needed if the L2 penalty is added to it, or if the block is not used
     * in place */
    int64_t gradient;
    int64_t filtered;  /* size of the filtered gradient; 0 if gradients are not filtered */
    int64_t direction; /* size of the preconditioned direction; 0 if it can overwrite the filtered gradient */
    /* Size of the work memory for products with the roots. It also holds the new term of a factor before the term is
     * added in float64. */
    int64_t products;
    int64_t whitened; /* size of the gradient multiplied by roots, for KL-Shampoo's factors; 0 for other factors */
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

/* Returns the bias correction 1 - beta^t as the original implementation computes it: in float32, including the
 * power. */
float pd_shampoo_correction(double beta, int64_t t);
/* Returns whether this step starts to compute new inverse roots from the factors. */
bool pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);

/* The phases of a shampoo step, each for one block. pd_shampoo_factors updates the factors and the second moment of the
 * graft in steps that start to compute roots; pd_shampoo_no_factors returns whether a step skips this phase.
 * pd_shampoo_step does the rest. */
void pd_shampoo_factors(const pd_unit *unit);
bool pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count);
void pd_shampoo_step(const pd_unit *unit);

/* Computes the number of ranks in a group that shares out blocks. *size gets `trainers` (the option
 * num_trainers_per_group of Meta's Shampoo), or `world`, the number of all workers, if `trainers` is -1.
 * PD_INVALID_ARGUMENT: `trainers` is not between 1 and `world` (>= 1), or does not divide it. */
int pd_group_size(int *size, int64_t trainers, int world, pd_error *err);

#endif
