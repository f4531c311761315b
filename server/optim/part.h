/* part.h - reads and writes named parts of an optimizer's state between two steps. A part is one slot, or the elements
 * of it that belong to one block of the parameter. */
#ifndef PD_PART_H
#define PD_PART_H

#include "optimizer_types.h"
#include "plan.h"

/* A part of the state, as pd_plan_part finds it. */
typedef struct pd_part {
    size_t slot;         /* index of the slot in plan->slots */
    const pd_block *box; /* The block whose elements are the part. NULL: the part is contiguous elements. */
    /* index in the slot of the part's first element; 0 if the part has a box */
    int64_t first;
    pd_shape shape;
} pd_part;

/* Finds a part of the state by the name and number of its slot; number -1 stands for a slot without a number. A `block`
 * >= 0 selects one of:
 *   - a slot that belongs to this block ("block_3.factor_matrices.1" is slot factor_matrices, number 1, block 3);
 *   - the block's item in a slot that has one item for each block (PD_SHARE_ITEM);
 *   - the elements that lie in the block, in a slot that has one element for each element of the parameter.
 *
 * With `block` -1 the part is the whole slot. Fills *part. Returns false if the optimizer has no such part. */
bool pd_plan_part(const pd_plan *plan, const char *slot, int number, int block, pd_part *part);
/* Copies the values of a part of the state to `out` as float64, in whatever type they are stored. Of a symmetric matrix
 * both halves are copied, although the optimizer keeps only the lower one up to date. Call it between two steps. */
void pd_optim_read_part(const pd_optim *optim, const pd_part *part, double *out);
/* Copies elements [first, first + n) of slot i to `out`, as float64. They are the same values that pd_optim_read_part
 * gives for the whole slot. Call it between two steps. */
void pd_optim_read_elements(const pd_optim *optim, size_t i, int64_t first, int64_t n, double *out);
/* Writes a part of the state. Its values are rounded to float32 (except for a float64 tensor), and then to the type in
 * which the tensor is stored. Of a symmetric matrix only the lower half is used. Call it between two steps.
 * PD_NO_MEMORY, only for a coded slot: nothing has changed. */
int pd_optim_write_part(pd_optim *optim, const pd_part *part, const double *in);
/* Copies the whole slot i to `out` as float32, whatever type it is stored in. Of a symmetric matrix both halves are
 * copied. Call it between two steps. */
void pd_optim_read_slot(const pd_optim *optim, size_t i, float *out);

#endif
