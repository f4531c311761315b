/* partition.h - cuts a tensor into boxes, and copies a box between the tensor and dense memory. Pure functions; any
 * thread. */
#ifndef PD_PARTITION_H
#define PD_PARTITION_H

#include "paramd/tensor.h"

/* A block: a box of a tensor's elements, given by its first index and its size in each dimension. */
typedef struct pd_block {
    int64_t start[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK];
} pd_block;

/* Returns the number of boxes that cover `shape`, each of at most block_size along every dimension. A scalar has one
 * box, a shape without elements has none. With a block_size of at most 0 there is one box. INT64_MAX: the number
 * does not fit. */
int64_t pd_partition_count(const pd_shape *shape, int64_t block_size);
/* Returns box number `index` of those that cover `shape`, in row-major order. The last box along a dimension may be
 * smaller than block_size. */
pd_block pd_partition_block(const pd_shape *shape, int64_t block_size, int64_t index);

int64_t pd_block_elements(const pd_block *block, int rank);
/* Describe the runs of contiguous memory in which a block's elements lie. pd_block_run_length returns the length of
 * a run, the same for all. pd_block_run_start returns the place in the whole tensor where run number `run` begins.
 * Runs are numbered in the order of the block's elements. The block must have elements. */
int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block);
int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run);
/* Copy a block between the whole tensor, row-major of `shape`, and a dense buffer of the block's own shape: gather
 * to the buffer, scatter to the tensor. */
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

#endif
