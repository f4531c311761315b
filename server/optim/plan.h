/* plan.h - how a row fills its plan. Step thread, or whoever plans. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "row.h"

/* Appends; return the index of what was appended or PD_NO_MEMORY. */
int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec);
int pd_plan_task(pd_plan *plan, const pd_task_spec *spec);
/* Cuts plan->shape into boxes of at most block_size along every dimension, row-major order of boxes; the last along a
 * dimension is smaller where it does not divide (partition.h). */
int pd_plan_blocks(pd_plan *plan, int64_t block_size);
void pd_plan_free(pd_plan *plan);       /* frees the arrays, not the struct; accepts an empty plan */

/* Copies a block between the parameter's layout and a dense buffer of the block's own shape. */
int64_t pd_block_elements(const pd_block *block, int rank);
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

#endif
