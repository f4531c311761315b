/* shampoo_plan.h - the slots and tasks of a parameter of shampoo. In all functions h[] has the hyperparameters'
 * values. Pure functions. */
#ifndef PD_SHAMPOO_PLAN_H
#define PD_SHAMPOO_PLAN_H

#include "row.h"
#include "shampoo_hypers.h"

/* Indices of a parameter's slots. -1: the parameter does not have the slot. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment;
    int factors, each; /* first slot of the first factor; number of slots that each factor has */
} shampoo_layout;
enum { FACTOR, INVERSE, BASIS }; /* the slots of one factor, by their offset from its first one */

shampoo_layout pd_shampoo_layout(const double *h);
int pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which);
bool pd_shampoo_factors_are_wide(const double *h); /* returns whether factors are float64 */
bool pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h); /* returns the first step that uses Shampoo's direction */
int pd_shampoo_root_order(const pd_plan *plan, const double *h);
int pd_shampoo_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

/* A block that was copied out of its parameter: its shape, and a box that covers all of it. */
typedef struct shampoo_box {
    pd_shape shape;
    pd_block block;
} shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* Parts of a unit's scratch memory, in floats. 0: the unit does not need the part. */
typedef struct shampoo_scratch {
    /* a copy of the block's gradient, if the L2 penalty is added to it, or if the block is not contiguous */
    int64_t gradient;
    int64_t filtered;  /* the filtered gradient, if gradients are filtered */
    int64_t direction; /* the preconditioned direction, if it cannot overwrite the filtered gradient */
    int64_t products;  /* work memory of the contraction, or a factor's new term before it is added in float64 */
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

#endif
