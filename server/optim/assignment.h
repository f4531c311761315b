/* assignment.h - which block belongs to whom: the order of work by size, and blocks dealt to a group of ranks.
 * Pure; any thread.
 *
 * One rule: the largest first, and of equal ones the one that comes first. The root pool runs what waits in this
 * order, a model runs its root tasks so, and Meta's DDP Shampoo deals blocks to ranks so, each to the rank that
 * has the least to carry (meta_shampoo's page, section 10). */
#ifndef PD_ASSIGNMENT_H
#define PD_ASSIGNMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"
#include "paramd/tensor.h"

typedef struct pd_load {
    double   size;              /* cost or bytes, not a NaN */
    uint64_t place;             /* where it stands without an order of sizes; no two are equal */
} pd_load;

/* a comes before b. */
static inline bool pd_load_leads(pd_load a, pd_load b)
{
    return a.size != b.size ? a.size > b.size : a.place < b.place;
}

/* Puts n loads in order. The result depends on their values alone. */
void pd_load_sort(pd_load *load, size_t n);

/* Bytes that a block of so many elements (>= 0) takes in a buffer of that type: a multiple of 64. INT64_MAX where
 * it does not fit. */
int64_t pd_assigned_bytes(int64_t elements, pd_dtype type);

/* Deals n blocks of bytes[i] (each >= 0, their sum an int64_t) to `ranks` (>= 1) ranks: owner[i] <- the rank of
 * block i, rank_bytes[r] <- the sum of rank r. In the order above each goes to the rank with the least so far, of
 * equal ones to the lower. Time: n log n + n ranks. PD_FAILED_PRECONDITION: a rank owns nothing, which upstream
 * refuses; owner and rank_bytes are filled all the same. PD_NO_MEMORY: they are not. */
int pd_assign_blocks(int *owner, int64_t *rank_bytes, const int64_t *bytes, size_t n, int ranks, pd_error *err);

/* What is gathered in each step: each rank's part is as large as the largest rank's. INT64_MAX where that does not
 * fit. */
int64_t pd_gathered_bytes(const int64_t *rank_bytes, int ranks);

/* Ranks in a group: *size <- `trainers` (num_trainers_per_group), or the whole world where that is -1.
 * PD_INVALID_ARGUMENT: not between 1 and the world's size (>= 1), or does not divide it. */
int pd_group_size(int *size, int64_t trainers, int world, pd_error *err);

#endif
