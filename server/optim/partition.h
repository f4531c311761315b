/* partition.h - cuts a tensor into blocks, and copies a block between the tensor and memory in which its elements lie
 * without gaps. Pure functions; any thread. */
#ifndef PD_PARTITION_H
#define PD_PARTITION_H

#include "paramd/error.h"
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
/* A block's elements lie in the whole tensor in runs of contiguous memory. pd_block_run_length returns the number of
 * elements of a run, which is the same for all runs of the block. pd_block_run_start returns the index in the whole
 * tensor at which run number `run` begins. Runs are numbered in the order of the block's elements. The block must have
 * elements. */
int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block);
int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run);
/* pd_block_gather copies a block out of a whole tensor (row-major, of `shape`) into the buffer `dense`, where the
 * block's elements lie without gaps. pd_block_scatter copies them back. */
void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block);
void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block);

/* Most blocks that a parameter may be cut into. There is a limit because the plan's description of each block takes
 * memory. A parameter of 2^32 elements has this many blocks of 128 x 128. */
#define PD_MAX_BLOCKS (1 << 18)

/* Returns `shape` with neighbouring dimensions merged while their product is at most `limit`. Dimensions of size 1
 * disappear; if all are 1, one of them stays. With a limit of 0 or less, dimensions are not merged; only those of size
 * 1 disappear. A scalar, and a shape without elements, stay as they are. The elements keep their order. */
pd_shape pd_shape_merged(const pd_shape *shape, int64_t limit);

/* Returns `shape` with neighbouring dimensions merged from the last one to the first: a dimension joins the one behind
 * it if their product is at most `limit` and more than `target` dimensions would be left otherwise. Dimensions of size
 * 1 disappear as in pd_shape_merged. */
pd_shape pd_shape_merged_backwards(const pd_shape *shape, int64_t limit, int64_t target);

/* Returns the dimension of `shape` that became dimension d of `merged`, the result of one of these functions. -1:
 * several dimensions were merged into it. */
int pd_shape_merged_from(const pd_shape *shape, const pd_shape *merged, int d);

/* Returns whether some dimension of `shape` is larger than `limit`. */
bool pd_shape_exceeds(const pd_shape *shape, int64_t limit);

/* Returns the largest side of the blocks that `shape` is cut into; 0 for a scalar and for a shape without elements. */
int64_t pd_shape_largest_side(const pd_shape *shape, int64_t block_size);

/* Checks the blocks that `shape` is cut into. There must not be too many of them, and their matrices and products must
 * be addressable. `shape` must have elements. PD_INVALID_ARGUMENT: the error says which number is too large, and names
 * the hyperparameter `hyper`, which sets the block size. */
int pd_shape_check_blocks(const pd_shape *shape, int64_t block_size, const char *hyper, pd_error *err);

#endif
