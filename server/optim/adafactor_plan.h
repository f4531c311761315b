/* adafactor_plan.h - hyperparameters of row adafactor, and how a plan lays the parameter out. Pure.
 *
 * The plan's shape is the parameter's with neighbouring dimensions of one rule merged. Moments, scales and clips
 * are tensors over some of its dimensions: v_row over all but COLUMN, v_col over all but ROW, a group (which has
 * its own scale and its own clip) over BATCH alone. Blocks are boxes of that shape: an index of each dimension
 * before `cut`, a run of indices of that one, and all of those behind it, so that what a block holds of each such
 * tensor, and its elements, lie together. */
#ifndef PD_ADAFACTOR_PLAN_H
#define PD_ADAFACTOR_PLAN_H

#include <math.h>

#include "axes.h"
#include "row.h"

enum {
    LEARNING_RATE, FACTORED, BY_SCALE, BETA1, DECAY_RATE, STEP_OFFSET, CLIPPING, WEIGHT_DECAY, MIN_DIM, EPSILON1, EPSILON2, DTYPE_MOMENTUM, FACTOR_MAP,
    LOGICAL_RULES, DECAY_EXPONENT, GLOBAL_CLIP, MAX_SCALE, SKIP_NAN, PARAM_DTYPE,
};
enum { FACT_HAS_AXES };                         /* some parameter of the job names its dimensions */
enum { DTYPE_FLOAT32, DTYPE_BFLOAT16 };

#define ADAFACTOR_NONE (-INFINITY)              /* a hyperparameter that upstream leaves None where 0 is a value */

/* What plan->own points to. Slots that a parameter does not have are -1. */
typedef struct pd_adafactor_own {
    bool    factored, by_scale;
    int     cut;                                /* the dimension along which blocks are cut, */
    int64_t chunks;                             /* and into how many chunks */
    int     v, m, v_row, v_col;                 /* slots: moments */
    int     row_sums, col_sums;                 /* temporary slots: a step's sums for the factored moments, */
    int     row_factors, col_factors;           /* their factors in the update, */
    int     row_means;                          /* and the divisors of rows */
    /* temporary slot: each block's sums for the moment that lacks `cut`, with several chunks */
    int     shared;
    /* temporary slot: each block's sums of its groups' squares, of weights and of updates */
    int     squares;
    int     limits;                             /* temporary slot: rate and clip of each group */
    bool    shared_is_row;                      /* which moment `shared` is for, */
    int64_t shared_size;                        /* and how many of its elements a block has sums for */
    int64_t groups;                             /* groups that a block has room for */
    pd_dim_rule rule[PD_MAX_RANK];              /* of each dimension of plan->shape */
} pd_adafactor_own;

/* a chunked dimension has at least so many indices a chunk, where they share sums */
enum { ADAFACTOR_SHARES = 16 };

/* A tensor over some dimensions of the plan's shape: a stride in it for each, 0 for those that it lacks. */
typedef struct pd_over {
    int64_t stride[PD_MAX_RANK];
    int64_t elements;
} pd_over;

pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule);     /* ROW: v_col. COLUMN: v_row */
pd_over pd_over_groups(const pd_plan *plan);                        /* BATCH alone */
pd_over pd_over_both(const pd_plan *plan);                          /* BATCH and NONE, which both moments have */
/* Where a block's part of it begins, and its elements. */
int64_t pd_over_first(const pd_over *over, const pd_block *block, int rank);
int64_t pd_over_size(const pd_over *over, const pd_block *block, int rank);

static inline pd_dim_rule pd_adafactor_rule(const pd_plan *plan, int dim)
{
    const pd_adafactor_own *own = plan->own;
    return own->rule[dim];
}
static inline bool pd_adafactor_is_none(double value) { return value == ADAFACTOR_NONE; }

int  pd_adafactor_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
void pd_adafactor_survey(const pd_declaration *declaration, double *fact);

#endif
