/* adafactor_plan.h - hyperparameters of row adafactor, and how a plan lays the parameter out. Pure.
 *
 * The plan's shape is the parameter's with neighbouring dimensions of one rule merged. Moments, scales and clips are tensors over some of its dimensions:
 * v_row over all but COLUMN, v_col over all but ROW, a group (which has its own scale and its own clip) over BATCH alone. Blocks are boxes of that shape: an
 * index of each dimension before `cut`, a run of indices of that one, and all of those behind it, so that what a block holds of each such tensor, and
 * its elements, lie together. */
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

/* plan->own */
enum {
    OWN_FACTORED, OWN_BY_SCALE, OWN_CUT, OWN_CHUNKS,    /* blocks along `cut` */
    /* Slots, -1: there is none. Of what is factored: the moments, a step's sums for them, what they become, and the means that rows are divided by. */
    OWN_V, OWN_M, OWN_V_ROW, OWN_V_COL, OWN_ROW_SUMS, OWN_COL_SUMS, OWN_ROW_FACTORS, OWN_COL_FACTORS, OWN_ROW_MEANS,
    OWN_SHARED,                                         /* each block's sums for the moment that lacks `cut`, where there are several chunks */
    OWN_SHARED_IS_ROW, OWN_SHARED_SIZE,                 /* which moment that is, and how many of its elements a block has sums for */
    OWN_SQUARES, OWN_LIMITS,                            /* each block's sums of its groups' squares, of weights and of updates; rate and clip of each group */
    OWN_GROUPS,                                         /* groups that a block has room for */
    OWN_RULE,                                           /* pd_dim_rule of the first dimension; those of the others follow */
    OWN_END = OWN_RULE + PD_MAX_RANK,
};

enum { ADAFACTOR_SHARES = 16 };                 /* a chunked dimension has at least so many indices a chunk, where they share sums */

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

static inline pd_dim_rule pd_adafactor_rule(const pd_plan *plan, int dim) { return (pd_dim_rule)plan->own[OWN_RULE + dim]; }
static inline bool pd_adafactor_is_none(double value) { return value == ADAFACTOR_NONE; }

int  pd_adafactor_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
void pd_adafactor_survey(const pd_declaration *declaration, double *fact);

#endif
