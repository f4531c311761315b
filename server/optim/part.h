/* part.h - reads and writes parts of an optimizer's state by their names, between two steps. */
#ifndef PD_PART_H
#define PD_PART_H

#include "optimizer_types.h"
#include "plan.h"

typedef struct pd_part {
    size_t slot;         /* index in plan->slots */
    const pd_block *box; /* the part's box in the plan's shape; NULL: the part is contiguous elements */
    int64_t first;       /* first of the contiguous elements; 0 for a whole slot */
    pd_shape shape;
} pd_part;

/* Finds a part of the state by the name and number of its slot: "momentum", -1. A `block` >= 0 selects one of:
 *   - a slot of that block ("block_3.factor_matrices.1" is factor_matrices, 1, 3);
 *   - the block's item in a slot that has one item for each block (PD_SHARE_ITEM);
 *   - the elements of a slot of the whole parameter that lie in the block's box.
 * With `block` -1 the part is the whole slot. Fills *part. False: the optimizer has no such part. */
bool pd_plan_part(const pd_plan *plan, const char *slot, int number, int block, pd_part *part);
/* Copies a part to `out` as float64, whatever its storage type. Of a symmetric slot both halves are given. Call it
 * between two steps. */
void pd_optim_read_part(const pd_optim *optim, const pd_part *part, double *out);
/* Copies elements [first, first + n) of slot i to `out`, as float64. They are the same as those that
 * pd_optim_read_part gives for the whole slot. Call it between two steps. */
void pd_optim_read_elements(const pd_optim *optim, size_t i, int64_t first, int64_t n, double *out);
/* Writes a part. Its values are rounded to float32 (except for a float64 slot), and then to the slot's storage type.
 * Of a symmetric slot only the lower half is used. Call it between two steps. PD_NO_MEMORY, only for quantized
 * slots: nothing has changed. */
int pd_optim_write_part(pd_optim *optim, const pd_part *part, const double *in);
/* Copies the whole slot i to `out` as float32, whatever its storage type. Of a symmetric slot both halves are given.
 * Call it between two steps. */
void pd_optim_read_slot(const pd_optim *optim, size_t i, float *out);

#endif
