/* part.h - parts of an optimizer's state by their names, read and written between two steps. */
#ifndef PD_PART_H
#define PD_PART_H

#include "optimizer_types.h"
#include "plan.h"

typedef struct pd_part {
    size_t          slot;                   /* index in plan->slots */
    const pd_block *box;                    /* in the plan's shape; NULL: contiguous elements */
    int64_t         first;                  /* of these the first; 0 of the whole slot */
    pd_shape        shape;
} pd_part;

/* Finds a part of the state: slot "momentum", number -1. With `block` >= 0 it is one of:
 *   - a slot of that block ("block_3.factor_matrices.1" is factor_matrices, 1, 3);
 *   - that block's item of a slot that has one for each block (PD_SHARE_ITEM);
 *   - the elements of a slot of the whole parameter that lie in the block's box.
 * -1: the whole slot. Fills *part. False: the optimizer keeps no such part. */
bool pd_plan_part(const pd_plan *plan, const char *slot, int number, int block, pd_part *part);
/* Copies a part out in float64, however it is stored. A symmetric slot is read with both halves. Between two steps. */
void pd_optim_read_part(const pd_optim *optim, const pd_part *part, double *out);
/* Writes a part: values are rounded to float32, and then to how the slot is stored. Of a symmetric slot the lower half
 * counts. Between two steps. PD_NO_MEMORY, only for coded slots: nothing has changed. */
int  pd_optim_write_part(pd_optim *optim, const pd_part *part, const double *in);
/* Copies slot i to `out` in float32, whole and with both halves, however it is stored. Between two steps. */
void pd_optim_read_slot(const pd_optim *optim, size_t i, float *out);

#endif
