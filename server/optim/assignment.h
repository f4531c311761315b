/* assignment.h - sorts blocks by size, and distributes them to ranks. Pure functions;
 * any thread.
 *
 * The largest block comes first. Of blocks of equal size, the one with the lower `place` comes first. This order has
 * two uses:
 *
 *   - The server's preconditioner pool runs waiting tasks in this order, and so does a model in
 *     a calling program (model.c).
 *   - Meta's DDP Shampoo assigns blocks to ranks in this order, each to the rank with the fewest bytes so far (its
 *     shampoo_ddp_distributor.py). */
#ifndef PD_ASSIGNMENT_H
#define PD_ASSIGNMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"
#include "paramd/tensor.h"

typedef struct pd_load {
    double size; /* cost of a task, or bytes of a block; must not be NaN */
    /* decides the order of tasks or blocks of equal size: the lowest number comes first. No two have the same */
    uint64_t place;
} pd_load;

/* Returns whether load a (a task or block with its size) comes before load b in the sorted order: the larger one first,
 * and of equal ones the one with the lower `place`. */
static inline bool pd_load_leads(pd_load a, pd_load b)
{
    return a.size != b.size ? a.size > b.size : a.place < b.place;
}

/* Sorts n loads (sizes of tasks or blocks), the largest first, as pd_load_leads orders them. The result does not depend
 * on their order before. */
void pd_load_sort(pd_load *load, size_t n);

/* Returns how many bytes a block of `elements` (>= 0) elements of this type takes in the buffer that Meta's DDP Shampoo
 * gathers from its ranks: its size rounded up to a multiple of 64. INT64_MAX: the number does not fit. */
int64_t pd_assigned_bytes(int64_t elements, pd_dtype type);

/* Assigns n blocks to `ranks` (>= 1) ranks. bytes[i] is the size of block i; sizes are not negative, and
 * their sum fits int64_t. The largest block comes first. Each goes to the rank with the fewest bytes so far; of equal
 * ranks, to the lowest. owner[i] gets the rank of block i, rank_bytes[r] the sum of the sizes of rank r's blocks. Takes
 * time n log n + n * ranks.
 *
 * PD_FAILED_PRECONDITION: a rank owns no block, which Meta's Shampoo refuses. owner and rank_bytes are filled all the
 * same.
 *
 * PD_NO_MEMORY: owner and rank_bytes are not filled. */
int pd_assign_blocks(int *owner, int64_t *rank_bytes, const int64_t *bytes, size_t n, int ranks, pd_error *err);

/* Returns how many bytes the all-gather of a step moves in Meta's DDP Shampoo, where every rank contributes as many
 * bytes as the rank that owns most. INT64_MAX: the number does not fit. */
int64_t pd_gathered_bytes(const int64_t *rank_bytes, int ranks);

/* Computes the number of ranks in a group that shares out blocks. *size gets `trainers` (the option
 * num_trainers_per_group of Meta's Shampoo), or `world`, the number of all workers, if `trainers` is -1.
 * PD_INVALID_ARGUMENT: `trainers` is not between 1 and `world` (>= 1), or does not divide it. */
int pd_group_size(int *size, int64_t trainers, int world, pd_error *err);

#endif
