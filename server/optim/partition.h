/* partition.h - cuts a tensor into boxes, and copies a box between the tensor and dense memory. Pure; any thread. */
#ifndef PD_PARTITION_H
#define PD_PARTITION_H

#include "paramd/tensor.h"

/* A block: a box of a tensor's shape. */
typedef struct pd_block {
    int64_t start[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK];
} pd_block;

/* Returns the number of boxes of at most block_size along every dimension that cover `shape`. A scalar has one box, a
 * shape without elements has none. A block_size of at most 0 cuts nothing. INT64_MAX: the number does not fit. */
int64_t pd_partition_count(const pd_shape *shape, int64_t block_size);
/* Returns box number `index`, in row-major order. The last box along a dimension may be smaller than block_size. */
pd_block pd_partition_block(const pd_shape *shape, int64_t block_size, int64_t index);

int64_t pd_block_elements(const pd_block *block, int rank);
/* A block's elements lie in runs of contiguous memory, in the block's own order. These two return the length of every
 * run, and the place in the whole tensor where run number `run` begins. The block has elements. */
int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block);
int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run);
/* Copies a block between the whole tensor, row-major of `shape`, and a dense buffer of the block's own shape. */
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

#endif
