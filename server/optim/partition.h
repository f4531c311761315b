/* partition.h - cuts a tensor into blocks, and copies a block between the tensor and memory in
 * which its elements lie without gaps. Pure functions; any thread. */
#ifndef PD_PARTITION_H
#define PD_PARTITION_H

#include "paramd/tensor.h"

/* A block: a box of a tensor's elements, given by its first index and its size in each dimension. */
typedef struct pd_block {
    int64_t start[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK];
} pd_block;

/* Returns the number of blocks that cover a tensor of `shape`, each of at most block_size along every dimension. A
 * scalar has one block, a shape without elements has none. With a block_size of at most 0 there is one block.
 * INT64_MAX: the number does not fit. */
int64_t pd_partition_count(const pd_shape *shape, int64_t block_size);
/* Returns block number `index` of the blocks that cover a tensor of `shape`, counted in row-major order. The last block
 * along a dimension may be smaller than block_size. */
pd_block pd_partition_block(const pd_shape *shape, int64_t block_size, int64_t index);

int64_t pd_block_elements(const pd_block *block, int rank);
/* These two functions describe the runs: the stretches of contiguous memory in which a block's elements lie in the
 * whole tensor. pd_block_run_length returns the number of elements of a run, which is the same for all runs of the
 * block. pd_block_run_start returns the index in the whole tensor at which run number `run` begins. Runs are numbered
 * in the order of the block's elements. The block must have elements. */
int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block);
int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run);
/* pd_block_gather copies a block out of a whole tensor (row-major, of `shape`) into the buffer `dense`, where the
 * block's elements lie without gaps. pd_block_scatter copies them back. */
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

#endif
