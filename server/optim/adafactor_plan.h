/* adafactor_plan.h - the hyperparameters of adafactor, and how a plan divides the parameter into moments and blocks.
 * Pure.
 *
 * The rule of a dimension (ROW, COLUMN, BATCH or NONE) is its role in the factored moments. The plan's shape is the
 * parameter's shape with neighbouring dimensions of the same rule merged. Moments, scales and clip factors are
 * tensors over some of its dimensions: v_row has all dimensions except COLUMN, v_col all except ROW. A group is one
 * index of the BATCH dimensions, and has its own scale and clip factor.
 *
 * A block is a box of the plan's shape: one index of each dimension before `cut`, a range of indices of `cut`, and
 * all indices of the dimensions behind it. So the elements of a block are contiguous. The block's part of each
 * moment, and of the scales and clip factors, is contiguous, too. */
#ifndef PD_ADAFACTOR_PLAN_H
#define PD_ADAFACTOR_PLAN_H

#include <math.h>

#include "axes.h"
#include "row.h"

enum {
    LEARNING_RATE,
    FACTORED,
    BY_SCALE,
    BETA1,
    DECAY_RATE,
    STEP_OFFSET,
    CLIPPING,
    WEIGHT_DECAY,
    MIN_DIM,
    EPSILON1,
    EPSILON2,
    DTYPE_MOMENTUM,
    FACTOR_MAP,
    LOGICAL_RULES,
    DECAY_EXPONENT,
    GLOBAL_CLIP,
    MAX_SCALE,
    SKIP_NAN,
    PARAM_DTYPE,
};
enum { FACT_HAS_AXES }; /* 1 if some parameter of the job names its dimensions */
enum { DTYPE_FLOAT32, DTYPE_BFLOAT16 };

#define ADAFACTOR_NONE                                                                                                 \
    (-INFINITY) /* value of a hyperparameter that upstream leaves None, and for which 0 is a valid number */

/* The struct that plan->own points to. Members that name slots are slot numbers; -1: the parameter does not have
 * this slot. */
typedef struct pd_adafactor_own {
    bool factored, by_scale;
    int cut;                      /* the dimension along which blocks are cut */
    int64_t chunks;               /* number of chunks into which dimension `cut` is cut */
    int v, m, v_row, v_col;       /* slots: moments */
    int row_sums, col_sums;       /* temporary slots: sums of the step's squares for v_row and v_col */
    int row_factors, col_factors; /* temporary slots: factors of the update, computed from v_row and v_col */
    int row_means;                /* temporary slot: means of v_row over ROW, by which v_row is divided */
    /* temporary slot, if there are several chunks: each block's own sums for the moment that does not have dimension
     * `cut` */
    int shared;
    /* temporary slot: for each block and group the sums of squares of the weights and of the updates */
    int squares;
    int limits;                    /* temporary slot: learning rate and clip factor of each group */
    bool shared_is_row;            /* true: the slot `shared` has sums for v_row; false: for v_col */
    int64_t shared_size;           /* number of sums that each block has in the slot `shared` */
    int64_t groups;                /* number of groups for which the slot `squares` has room in each block */
    pd_dim_rule rule[PD_MAX_RANK]; /* rule of each dimension of plan->shape */
} pd_adafactor_own;

/* least number of indices in a chunk if blocks have sums in the slot `shared` */
enum { ADAFACTOR_SHARES = 16 };

/* A tensor over some dimensions of the plan's shape. stride[d] is 0 for a dimension d that the tensor does not have. */
typedef struct pd_over {
    int64_t stride[PD_MAX_RANK];
    int64_t elements;
} pd_over;

pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule); /* shape of v_col for ROW, of v_row for COLUMN */
pd_over pd_over_groups(const pd_plan *plan);                    /* the BATCH dimensions alone */
/* returns the tensor over the BATCH and NONE dimensions, which v_row and v_col both have */
pd_over pd_over_both(const pd_plan *plan);
/* Return the offset of a block's part of the tensor, and how many elements this part has. */
int64_t pd_over_first(const pd_over *of, const pd_block *block, int rank);
int64_t pd_over_size(const pd_over *of, const pd_block *block, int rank);

static inline pd_dim_rule pd_adafactor_rule(const pd_plan *plan, int dim)
{
    const pd_adafactor_own *own = plan->own;
    return own->rule[dim];
}
static inline bool pd_adafactor_is_none(double value)
{
    return value == ADAFACTOR_NONE;
}

int pd_adafactor_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
void pd_adafactor_survey(const pd_declaration *declaration, double *fact);

#endif
