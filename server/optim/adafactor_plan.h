/* adafactor_plan.h - the hyperparameters of adafactor, and the plan of a parameter: its state (the moments), and the
 * blocks into which it is cut. Pure functions.
 *
 * Adafactor keeps the second moment (a running average of squared gradients) of a matrix in two parts: v_row has the
 * mean over each row, v_col the mean over each column. The rule of a dimension is its role in these moments. v_row has
 * the ROW dimensions and not the COLUMN dimensions; v_col has the COLUMN dimensions and not the ROW dimensions. Both
 * have the BATCH dimensions, which count independent tensors, and the NONE dimensions. A group is one index of the
 * BATCH dimensions, that is, one of the independent tensors. It has its own scale and clip factor.
 *
 * The plan's shape is the parameter's shape with neighbouring dimensions of the same rule merged. A block is the part
 * of the parameter that one thread computes at a time. In the plan's shape it has one index of each dimension before
 * `cut`, a range of indices of `cut`, and all indices of the dimensions behind it. So the elements of a block are
 * contiguous in memory, and so is the block's part of each moment, and of the scales and clip factors. */
#ifndef PD_ADAFACTOR_PLAN_H
#define PD_ADAFACTOR_PLAN_H

#include <math.h>

#include "axes.h"
#include "optimizer_ops.h"

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
/* index of a number about the whole job, which is 1 if some parameter names its dimensions */
enum { FACT_HAS_AXES };
enum { DTYPE_FLOAT32, DTYPE_BFLOAT16 };

#define ADAFACTOR_NONE                                                                                                 \
    (-INFINITY) /* stands for None, which T5X allows in hyperparameters for which 0 is a valid number, too */

/* adafactor's own part of a parameter's plan, to which plan->own points. Members that name slots (tensors of optimizer
 * state) hold the slot's number, or -1 if the parameter does not have the slot. */
typedef struct pd_adafactor_own {
    bool factored, by_scale;
    int cut;        /* the dimension along which the parameter is cut into blocks */
    int64_t chunks; /* number of chunks into which dimension `cut` is cut */
    /* slots: full second moment, momentum, row moment and column moment */
    int v, m, v_row, v_col;
    /* temporary tensors (slots): sums of this step's squared gradients for the moments v_row and v_col */
    int row_sums, col_sums;
    /* temporary tensors (slots): the factors by which gradients are multiplied, computed from v_row and v_col */
    int row_factors, col_factors;
    /* temporary tensor (slot): means of v_row over the ROW dimensions, by which v_row is divided */
    int row_means;
    /* temporary tensor (slot), if blocks are chunks of a ROW or COLUMN dimension: each block's own sums of squared
     * gradients for the moment that does not have this dimension */
    int shared;
    /* temporary tensor (slot): for each block and each group (one of the independent tensors that a parameter may
     * stack), the sum of squares of the weights and that of the updates */
    int squares;
    /* temporary tensor (slot): learning rate and clip factor of each group */
    int limits;
    /* whether the sums in the slot `shared` are for the moment v_row; false: for v_col */
    bool shared_is_row;
    /* number of sums of squared gradients that each block has in the slot `shared` */
    int64_t shared_size;
    /* number of groups for which each block has room in the slot `squares` */
    int64_t groups;
    pd_dim_rule rule[PD_MAX_RANK]; /* factor rule of each dimension of plan->shape: ROW, COLUMN, BATCH or NONE */
} pd_adafactor_own;

/* least number of indices in a chunk (the range of indices that a block has in dimension `cut`), if each block has its
 * own sums in the slot `shared`: they are small compared with such a chunk */
enum { ADAFACTOR_SHARES = 16 };

/* The layout of a tensor, such as a moment, that has only some dimensions of the plan's shape (the parameter's shape
 * with merged dimensions). `elements` is its size. stride[d] is the distance in memory from one index of dimension d to
 * the next, in elements; 0: the tensor does not have this dimension. */
typedef struct pd_over {
    int64_t stride[PD_MAX_RANK];
    int64_t elements;
} pd_over;

/* returns the layout of a tensor without the dimensions that have this factor rule: v_col for ROW, v_row for COLUMN */
pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule);
/* returns the layout of a tensor that has only the dimensions with the factor rule BATCH */
pd_over pd_over_groups(const pd_plan *plan);
/* returns the layout of a tensor that has only the dimensions with the factor rules BATCH and NONE, which both moments
 * have */
pd_over pd_over_both(const pd_plan *plan);
/* pd_over_first returns where a block's part of a tensor begins, as an offset in elements. pd_over_size returns how
 * many elements the part has. `of` is the layout of the tensor, `rank` the number of dimensions of the plan's shape. */
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
