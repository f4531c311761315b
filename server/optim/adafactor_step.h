/* adafactor_step.h - the hyperparameters of adafactor, the plan of a parameter, and the phases of a step. Pure
 * functions.
 *
 * Adafactor keeps the second moment of a matrix as two tensors: v_row has the mean over each row, v_col the mean over
 * each column. The rule of a dimension is its role in these moments. v_row has the ROW dimensions and not the COLUMN
 * dimensions; v_col has the COLUMN dimensions and not the ROW dimensions. Both have the BATCH dimensions, which count
 * independent tensors, and the NONE dimensions. A group is one of the independent tensors: the elements that have the
 * same indices in the BATCH dimensions. Each group has its own scale and clip factor.
 *
 * The plan's shape is the parameter's shape with neighbouring dimensions of the same rule merged. In the plan's shape a
 * block has one index of each dimension before `cut`, a range of indices of `cut`, and all indices of the dimensions
 * after it. So the elements of a block are contiguous in memory, and so is the block's part of each moment, and of the
 * scales and clip factors. */
#ifndef PD_ADAFACTOR_STEP_H
#define PD_ADAFACTOR_STEP_H

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
enum { DTYPE_FLOAT32, DTYPE_BFLOAT16 };

/* Value of a hyperparameter that stands for T5X's None, where 0 is a valid number. */
#define ADAFACTOR_NONE (-INFINITY)

/* adafactor's own struct in a parameter's plan, to which plan->own points. The members from `v` to `limits` are indices
 * of slots; -1: the parameter does not have the slot. Slots from row_sums on are temporary. */
typedef struct pd_adafactor_own {
    bool factored, by_scale;
    int cut;        /* the dimension along which the parameter is cut into blocks */
    int64_t chunks; /* number of ranges of indices into which dimension `cut` is cut */
    /* slots of the full second moment, the momentum, the row moment and the column moment */
    int v, m, v_row, v_col;
    int row_sums, col_sums;       /* slots of the sums of this step's squared gradients for v_row and v_col */
    int row_factors, col_factors; /* slots of the factors that multiply the gradients, from v_row and v_col */
    int row_means;                /* slot of the means of v_row over the ROW dimensions, by which v_row is divided */
    /* slot for parameters whose dimension `cut` is ROW or COLUMN: each block's own sums of squared gradients for the
     * moment that does not have this dimension */
    int shared;
    /* slot of the sums of squares of the weights and of the updates, for each block and group */
    int squares;
    int limits;                    /* slot of the learning rate and clip factor of each group */
    bool shared_is_row;            /* whether the sums in `shared` are for v_row; false: for v_col */
    int64_t shared_size;           /* number of sums that each block has in `shared` */
    int64_t groups;                /* number of groups for which each block has room in `squares` */
    pd_dim_rule rule[PD_MAX_RANK]; /* factor rule of each dimension of plan->shape */
} pd_adafactor_own;

/* Least number of indices of dimension `cut` in a block that has its own sums in `shared`. This keeps the sums small
 * compared with the block. */
enum { ADAFACTOR_SHARES = 16 };

/* The layout of a tensor, such as a moment, that has only some dimensions of the plan's shape. stride[d] is the
 * distance in memory from one index of dimension d to the next, in elements; 0: the tensor does not have dimension
 * d. */
typedef struct pd_over {
    int64_t stride[PD_MAX_RANK];
    int64_t elements;
} pd_over;

/* Return the layout of a tensor that has only some dimensions. pd_over_all_but: all dimensions except those with the
 * rule `rule`, so the layout of v_col for ROW and of v_row for COLUMN. pd_over_groups: the BATCH dimensions.
 * pd_over_both: the BATCH and NONE dimensions, which both moments have. */
pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule);
pd_over pd_over_groups(const pd_plan *plan);
pd_over pd_over_both(const pd_plan *plan);
/* Return where a block's elements begin in a tensor of layout `of` (pd_over_first), and how many there are
 * (pd_over_size). `rank` is that of the plan's shape. */
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

/* The phases of a step, in order. `sums` adds up squared gradients and weights block by block; if the parameter is not
 * factored, it also computes the block's new moment. `moments` computes a share of v_row and v_col in each call.
 * `means` computes the means by which v_row is divided, and the factors from v_row. `lengths` adds up squared updates
 * for clipping. `limits` computes learning rate and clip factor of each group. `update` computes new weights and
 * momentum. */
void pd_adafactor_sums(const pd_unit *unit);
void pd_adafactor_moments(const pd_unit *unit);
void pd_adafactor_means(const pd_unit *unit);
void pd_adafactor_lengths(const pd_unit *unit);
void pd_adafactor_limits(const pd_unit *unit);
void pd_adafactor_update(const pd_unit *unit);

#endif
