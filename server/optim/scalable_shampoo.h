/* scalable_shampoo.h - inside of the optimizer scalable_shampoo: shared by its files (scalable_shampoo.c: the row; scalable_shampoo_plan.c;
 * scalable_shampoo_move.c), and by its test. */
#ifndef PD_SCALABLE_SHAMPOO_H
#define PD_SCALABLE_SHAMPOO_H

#include "graft.h"
#include "plan.h"

/* Hyperparameters, in this order. */
enum {
    LEARNING_RATE, BLOCK_SIZE, BETA1, BETA2, DIAGONAL_EPSILON, MATRIX_EPSILON, WEIGHT_DECAY, START_STEP, ROOT_INTERVAL, STATISTICS_INTERVAL,
    INTERPRET_SHAPES, GRAFT_TYPE, NESTEROV, EXPONENT_OVERRIDE, FAILURE_THRESHOLD, MOVING_AVERAGE, SKIP_SIZE, CLIP, MEMORY_REDUCTION, PRECISION,
    SHARDED, ROOT_METHOD, ROOT_DELAY, ROOT_RETRIES, PADDING_COUPLING, REDUCTION_SCOPE, DIAGONAL_DTYPE, NAN_ROOTS_LEAK
};
enum { GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_RMSPROP_NORMALIZED, GRAFT_SQRT_N, GRAFT_ADAGRAD_NORMALIZED };
enum { SCOPE_ALL, SCOPE_MOMENTUM };

/* ---- scalable_shampoo_plan.c; `h`: values by hyperparameter ---- */

/* Indices of the slots; -1 of those that a parameter does not have. */
typedef struct scalable_layout {
    int momentum, diagonal_momentum, diagonal_statistics;
    int direction, errors, statistics;      /* preconditioned parameters alone; `statistics`: the first one's slots, `each` for every one */
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

/* ---- scalable_shampoo_move.c ---- */

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
    float       *momentum, *diagonal_momentum;      /* the latter NULL with PD_GRAFT_SIGN: the one momentum then keeps what was chosen */
    float        length;            /* of the graft over the direction's own */
    float        beta1, gain, weight_decay;
    float        run;               /* 1: the preconditioned direction is used, 0: the graft's */
    float        rate;              /* minus the learning rate */
} scalable_move;

void pd_scalable_move(const scalable_move *m);

#endif
