/* partition.h - cuts a tensor into boxes, and moves a box between the tensor and dense memory. Pure; any thread. */
#ifndef PD_PARTITION_H
#define PD_PARTITION_H

#include "row.h"

/* Number of boxes of at most block_size along every dimension that cover `shape`: a scalar is one, a shape without elements none. With a
 * block_size of at most 0 nothing is cut. INT64_MAX where it does not fit. */
int64_t pd_partition_count(const pd_shape *shape, int64_t block_size);
/* The index-th of them, in row-major order; the last along a dimension is smaller where block_size does not divide. */
pd_block pd_partition_block(const pd_shape *shape, int64_t block_size, int64_t index);

int64_t pd_block_elements(const pd_block *block, int rank);
/* A block's elements lie in runs, one behind the other in the block's own order: how long each is, and where the run-th begins in the whole tensor. A block
 * whose elements all lie together is one run. The block has elements. */
int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block);
int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run);
/* Copies a block between the whole tensor, row-major of `shape`, and a dense buffer of the block's own shape. */
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

#endif
