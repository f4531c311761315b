/* recovery.h - cuts a flat range of a tensor's elements into blocks that are tensors again. Pure functions; any thread;
 * nothing is allocated.
 *
 * FSDP flattens a parameter and gives each rank a range of its elements, which need not begin or end with a row. Meta's
 * Shampoo cuts such a range into the largest pieces that are tensors again, and treats each piece as a parameter of its
 * own. The cuts are those of Meta's program since its correction of August 2024.
 *
 * For a range from a to b at dimension d, let m be the number of elements that share one index of dimension d. All
 * elements between a and b, rounded inwards to multiples of m, are one block. The elements before and after that block
 * are cut at dimension d + 1 in the same way. At the last dimension a range is one vector. */
#ifndef PD_RECOVERY_H
#define PD_RECOVERY_H

#include "paramd/error.h"
#include "paramd/tensor.h"

/* Most blocks that a range is cut into: one in the middle, and for each later dimension one before and one after it. */
#define PD_MAX_RECOVERED (2 * PD_MAX_RANK - 1)

typedef struct pd_recovered {
    /* Number of blocks in at[]. The blocks are in the order of their elements, cover the range and do not overlap. */
    int n;
    struct {
        /* Shape of the block. It begins with the dimension at which the block was cut: earlier dimensions are
         * dropped. */
        pd_shape shape;
        /* Place of the block's first element in the flat tensor. Its elements follow there without gaps, in row-major
         * order. */
        int64_t offset;
    } at[PD_MAX_RECOVERED];
} pd_recovered;

/* Cuts elements [start, end) of a row-major tensor of `shape` into blocks. An empty range has no blocks; the block of a
 * scalar is a vector of one element. PD_INVALID_ARGUMENT: the range does not lie in the tensor, or the shape is not
 * valid; *out is empty then. */
int pd_recover_blocks(pd_recovered *out, const pd_shape *shape, int64_t start, int64_t end, pd_error *err);

#endif
