/* shampoo_plan.h - which slots and tasks a parameter of shampoo has. `h`: values by hyperparameter. Pure. */
#ifndef PD_SHAMPOO_PLAN_H
#define PD_SHAMPOO_PLAN_H

#include "row.h"
#include "shampoo_hypers.h"

/* Indices of the slots; -1 of those that a parameter does not have. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment;
    int factors, each;              /* the first factor's slots, and how many there are for every factor */
} shampoo_layout;
enum { FACTOR, INVERSE, BASIS };    /* what a factor's slots are */

shampoo_layout pd_shampoo_layout(const double *h);
int     pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which);
bool    pd_shampoo_factors_are_wide(const double *h);           /* float64 */
bool    pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h);                      /* first step with Shampoo's direction */
int     pd_shampoo_root_order(const pd_plan *plan, const double *h);
int     pd_shampoo_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

/* A block without anything around it: its own shape, and a box that covers it. */
typedef struct shampoo_box { pd_shape shape; pd_block block; } shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* The parts of a unit's scratch memory, in floats; 0 of those that it does not need. */
typedef struct shampoo_scratch {
    /* the block's gradient, with the penalty's term or because it does not lie together */
    int64_t gradient;
    int64_t filtered;               /* D, where gradients are filtered */
    int64_t direction;              /* P, where it may not be D's memory */
    int64_t products;               /* of contraction, or a factor's new term before it is added in float64 */
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

#endif
