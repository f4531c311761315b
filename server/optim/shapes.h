/* shapes.h - how a parameter's shape becomes the one that block preconditioners see: which dimensions are merged,
 * which blocks it is cut into and how large their statistics are. Shared by the optimizers that keep a matrix for
 * each dimension of a block. Pure; any thread. Source: google_shampoo's page, section 3. */
#ifndef PD_SHAPES_H
#define PD_SHAPES_H

#include "plan.h"

/* Blocks of a parameter: a plan describes each and takes memory for that (a parameter of 4 Gi elements has as many
 * of side 128). */
#define PD_MAX_BLOCKS (1 << 18)

/* `shape` with neighbouring dimensions merged while their product is at most `limit`; dimensions of size 1
 * disappear (if all are 1: one of them stays). With a limit of at most 0 only those disappear. A scalar, and a
 * shape without elements, stay as they are. The elements are the same, and in the same order. */
pd_shape pd_shape_merged(const pd_shape *shape, int64_t limit);

/* Which dimension of `shape` dimension d of pd_shape_merged's result is; -1: several of them that were merged. */
int pd_shape_merged_from(const pd_shape *shape, const pd_shape *merged, int d);

/* Some dimension is larger than `limit`. */
bool pd_shape_exceeds(const pd_shape *shape, int64_t limit);

/* Side of the largest block of `shape`; 0 of a scalar and of a shape without elements. */
int64_t pd_shape_largest_side(const pd_shape *shape, int64_t block_size);

/* Statistics of a plan whose shape was cut into blocks: number block * rank + dimension. */
int64_t pd_statistics_count(const pd_plan *plan);
int64_t pd_statistics_side(const pd_plan *plan, int64_t number);

/* Are there not too many blocks of `shape`, and are they such that matrices of each side, and products with them,
 * can be addressed? Wants a shape with elements. PD_INVALID_ARGUMENT: no; the text says what is too large, and
 * names `hyper`, which sets the block size. */
int pd_shape_check_blocks(const pd_shape *shape, int64_t block_size, const char *hyper, pd_error *err);

#endif
