/* scalable_shampoo_plan.h - hyperparameters of scalable_shampoo, and the state tensors (slots) and preconditioner tasks
 * (computations of matrix roots) of a parameter. In all functions h[] has the hyperparameters' values. Pure
 * functions. */
#ifndef PD_SCALABLE_SHAMPOO_PLAN_H
#define PD_SCALABLE_SHAMPOO_PLAN_H

#include "optimizer_ops.h"

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

/* Indices of a parameter's slots. -1: the parameter does not have this slot. */
typedef struct scalable_layout {
    int momentum, diagonal_momentum, diagonal_statistics;
    /* Slots that only preconditioned parameters have. `statistics` is the first slot of the first statistic; each
     * statistic has `each` slots: the statistic, its inverse root, and for some methods an eigenbasis. */
    int direction, errors, statistics;
    int each;
} scalable_layout;
/* the slots of one statistic, as offsets from its first slot */
enum { STATISTIC, PRECONDITIONER, BASIS };

scalable_layout pd_scalable_layout(const pd_plan *plan, const double *h);
int pd_scalable_slot(const scalable_layout *slots, int64_t statistic, int which);
bool pd_scalable_quantizes_statistics(const double *h);
bool pd_scalable_graft_has_diagonal(const double *h);
int pd_scalable_root_order(const pd_plan *plan, const double *h);
/* The functions `survey` and `plan` of scalable_shampoo's entry in the table of optimizers (optimizer_ops.h). The
 * survey computes one number: the largest side of a block. */
void pd_scalable_survey(const pd_declaration *declaration, double *fact);
int pd_scalable_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

#endif
