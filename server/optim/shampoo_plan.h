/* shampoo_plan.h - the state tensors (slots) and preconditioner tasks of a parameter of shampoo.
 * In all functions h[] has the hyperparameters' values. Pure functions. */
#ifndef PD_SHAMPOO_PLAN_H
#define PD_SHAMPOO_PLAN_H

#include "optimizer_ops.h"
#include "shampoo_hypers.h"

/* Indices of a parameter's slots. -1: the parameter does not have this slot. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment;
    /* Index of the first slot of the first factor; number of slots that each
     * factor has. */
    int factors, each;
} shampoo_layout;
/* the slots of one factor, as offsets from its first slot */
enum { FACTOR, INVERSE, BASIS };

shampoo_layout pd_shampoo_layout(const double *h);
int pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which);
/* returns whether the factors are kept in float64 */
bool pd_shampoo_factors_are_wide(const double *h);
bool pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h); /* returns the first step that uses Shampoo's direction */
int pd_shampoo_root_order(const pd_plan *plan, const double *h);
int pd_shampoo_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

/* A block that was copied out of its parameter into contiguous memory: the shape of the copy, and a pd_block that
 * covers all of it. */
typedef struct shampoo_box {
    pd_shape shape;
    pd_block block;
} shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* Sizes of the parts of a thread's scratch memory for one block, in floats. 0: the part is not needed. */
typedef struct shampoo_scratch {
    /* size of a copy of the gradient of a block, needed if the L2 penalty is added to it, or if
     * the block is not used in place */
    int64_t gradient;
    int64_t filtered;  /* size of the filtered gradient; 0 if gradients are not filtered */
    int64_t direction; /* size of the preconditioned direction; 0 if it can overwrite the filtered gradient */
    /* Size of the work memory for products with the roots. It also holds the new term of a factor before the term is
     * added in float64. */
    int64_t products;
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

#endif
