/* shapes.h - turns a parameter's shape into the shape that block preconditioners use: merges dimensions, cuts blocks,
 * and computes the sizes of their statistics. Used by the optimizers that keep a matrix for each dimension of a block.
 * Pure functions; any thread. */
#ifndef PD_SHAPES_H
#define PD_SHAPES_H

#include "plan.h"

/* Most blocks that a parameter may be cut into. There is a limit because the plan's description of each block takes
 * memory. A parameter of 2^32 elements has this many blocks of 128 x 128. */
#define PD_MAX_BLOCKS (1 << 18)

/* Returns `shape` with neighbouring dimensions merged while their product is at most `limit`. Dimensions of size 1
 * disappear; if all are 1, one of them stays. With a limit of 0 or less, dimensions are not merged; only those of
 * size 1 disappear. A scalar, and a shape without elements, stay as they are. The elements keep their order. */
pd_shape pd_shape_merged(const pd_shape *shape, int64_t limit);

/* Returns the dimension of `shape` that became dimension d of `merged`, the result of pd_shape_merged. -1: several
 * dimensions were merged into it. */
int pd_shape_merged_from(const pd_shape *shape, const pd_shape *merged, int d);

/* Returns whether some dimension of `shape` is larger than `limit`. */
bool pd_shape_exceeds(const pd_shape *shape, int64_t limit);

/* Returns the largest side of the blocks that `shape` is cut into; 0 for a scalar and for a shape without elements. */
int64_t pd_shape_largest_side(const pd_shape *shape, int64_t block_size);

/* These functions return the number of statistics of a plan whose shape was cut into blocks, and the number of rows of
 * one of them. Each dimension of a block has a statistic, a square matrix with one row for each index. The statistic of
 * dimension d of a block has the number block * rank + d. */
int64_t pd_statistics_count(const pd_plan *plan);
int64_t pd_statistics_side(const pd_plan *plan, int64_t number);

/* Checks the blocks that `shape` is cut into. There must not be too many of them, and their matrices and products
 * must be addressable. `shape` must have elements. PD_INVALID_ARGUMENT: the error says which number is too large,
 * and names the hyperparameter `hyper`, which sets the block size. */
int pd_shape_check_blocks(const pd_shape *shape, int64_t block_size, const char *hyper, pd_error *err);

#endif
