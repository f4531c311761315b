/* assignment.h - sorts blocks by size, and distributes them to a group of ranks. Pure; any thread.
 *
 * The largest block comes first. Of equal blocks, the one with the lower `place` comes first. This order has two
 * uses:
 *
 *   - The server's root pool runs waiting tasks in this order, and so does a model in a calling program (model.c).
 *   - Meta's DDP Shampoo assigns blocks to ranks in this order, each to the rank with the fewest bytes so far (its
 *     shampoo_ddp_distributor.py). */
#ifndef PD_ASSIGNMENT_H
#define PD_ASSIGNMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"
#include "paramd/tensor.h"

typedef struct pd_load {
    double size;    /* cost of a task, or bytes of a block; not NaN */
    uint64_t place; /* decides the order of equal sizes; different for each load */
} pd_load;

/* Returns whether load a comes before load b in the order. */
static inline bool pd_load_leads(pd_load a, pd_load b)
{
    return a.size != b.size ? a.size > b.size : a.place < b.place;
}

/* Sorts n loads in the order of pd_load_leads. The result does not depend on their order before. */
void pd_load_sort(pd_load *load, size_t n);

/* Returns the bytes that a block of `elements` (>= 0) elements takes in a buffer of this type, rounded up to a
 * multiple of 64. INT64_MAX: too many. */
int64_t pd_assigned_bytes(int64_t elements, pd_dtype type);

/* Assigns n blocks to `ranks` (>= 1) ranks. bytes[i] is the size of block i; sizes are not negative, and their sum
 * fits int64_t. The blocks are taken in the order of pd_load_leads. Each goes to the rank with the fewest bytes so
 * far; of equal ranks, to the lowest. owner[i] gets the rank of block i, rank_bytes[r] the sum of rank r. Takes time
 * n log n + n * ranks.
 *
 * PD_FAILED_PRECONDITION: a rank owns no block, which upstream refuses. owner and rank_bytes are filled all the
 * same.
 *
 * PD_NO_MEMORY: owner and rank_bytes are not filled. */
int pd_assign_blocks(int *owner, int64_t *rank_bytes, const int64_t *bytes, size_t n, int ranks, pd_error *err);

/* Returns the bytes of each step's all-gather. Every rank contributes as many bytes as the rank that owns most.
 * INT64_MAX: too many. */
int64_t pd_gathered_bytes(const int64_t *rank_bytes, int ranks);

/* Computes the number of ranks in a group. *size gets `trainers` (upstream's num_trainers_per_group), or `world`,
 * the number of workers, if `trainers` is -1. PD_INVALID_ARGUMENT: `trainers` is not between 1 and `world` (>= 1),
 * or does not divide it. */
int pd_group_size(int *size, int64_t trainers, int world, pd_error *err);

#endif
