/* scalable_shampoo_plan.h - hyperparameters of scalable_shampoo, and which slots and tasks a parameter has.
 * `h`: values by hyperparameter. Pure. */
#ifndef PD_SCALABLE_SHAMPOO_PLAN_H
#define PD_SCALABLE_SHAMPOO_PLAN_H

#include "row.h"

/* Hyperparameters, in this order. */
enum {
    LEARNING_RATE, BLOCK_SIZE, BETA1, BETA2, DIAGONAL_EPSILON, MATRIX_EPSILON, WEIGHT_DECAY, START_STEP, ROOT_INTERVAL, STATISTICS_INTERVAL,
    INTERPRET_SHAPES, GRAFT_TYPE, NESTEROV, EXPONENT_OVERRIDE, FAILURE_THRESHOLD, MOVING_AVERAGE, SKIP_SIZE, CLIP, MEMORY_REDUCTION, PRECISION,
    SHARDED, ROOT_METHOD, ROOT_DELAY, ROOT_RETRIES, PADDING_COUPLING, REDUCTION_SCOPE, DIAGONAL_DTYPE, NAN_ROOTS_LEAK
};
enum { GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_RMSPROP_NORMALIZED, GRAFT_SQRT_N, GRAFT_ADAGRAD_NORMALIZED };
enum { SCOPE_ALL, SCOPE_MOMENTUM };

/* Indices of the slots; -1 of those that a parameter does not have. */
typedef struct scalable_layout {
    int momentum, diagonal_momentum, diagonal_statistics;
    /* preconditioned parameters alone; `statistics`: the first one's slots, `each` for every one */
    int direction, errors, statistics;
    int each;
} scalable_layout;
enum { STATISTIC, PRECONDITIONER, BASIS };  /* what a statistic's slots are */

scalable_layout pd_scalable_layout(const pd_plan *plan, const double *h);
int  pd_scalable_slot(const scalable_layout *slots, int64_t statistic, int which);
bool pd_scalable_quantizes_statistics(const double *h);
bool pd_scalable_graft_has_diagonal(const double *h);
int  pd_scalable_root_order(const pd_plan *plan, const double *h);
/* The row's survey (one fact: the largest side of a block) and plan. */
void pd_scalable_survey(const pd_declaration *declaration, double *fact);
int  pd_scalable_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

#endif
