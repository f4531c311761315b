/* recovery.h - tensor blocks in a flat range of a tensor's elements. Pure; any thread; nothing is allocated.
 *
 * FSDP flattens a parameter and gives each rank a range of its elements, which need not begin or end with a row.
 * Meta's Shampoo cuts such a range into the largest pieces that are tensors again, each of which it treats as a
 * parameter of its own. Source: meta_shampoo's page, section 10, with the recursion as it was repaired in August
 * 2024: of a range from a to b at dimension d, m the elements behind one index of d, everything between a and b
 * rounded inwards to multiples of m is one block, and what is left before and behind it is cut at dimension d + 1;
 * at the last dimension a range is one vector. */
#ifndef PD_RECOVERY_H
#define PD_RECOVERY_H

#include "paramd/error.h"
#include "paramd/tensor.h"

/* One in the middle, and before and behind it one of each dimension that follows. */
#define PD_MAX_RECOVERED (2 * PD_MAX_RANK - 1)

typedef struct pd_recovered {
    int n;                          /* in the order of their elements; they cover the range, and do not overlap */
    struct {
        /* dimensions before the one where it was cut are gone, so its rank is 1 to the tensor's */
        pd_shape shape;
        /* of its first element in the flat tensor: its elements lie together there, in its own row-major order */
        int64_t  offset;
    } at[PD_MAX_RECOVERED];
} pd_recovered;

/* The blocks in elements `start` to `end` (that one excluded) of a row-major tensor of `shape`. An empty range has
 * none; of a scalar the block is a vector of one. PD_INVALID_ARGUMENT: no range of the tensor, or no shape; *out
 * is empty then. */
int pd_recover_blocks(pd_recovered *out, const pd_shape *shape, int64_t start, int64_t end, pd_error *err);

#endif
