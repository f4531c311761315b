/* assignment.h - distributes blocks to ranks, as Meta's DDP Shampoo does (its shampoo_ddp_distributor.py): the largest
 * block comes first (task.h), and each goes to the rank with the fewest bytes so far. */
#ifndef PD_ASSIGNMENT_H
#define PD_ASSIGNMENT_H

#include "paramd/error.h"
#include "paramd/tensor.h"
#include "task.h"

/* Returns how many bytes a block of `elements` (>= 0) elements of this type takes in the buffer that Meta's DDP Shampoo
 * gathers from its ranks: its size rounded up to a multiple of 64. INT64_MAX: the number does not fit. */
int64_t pd_assigned_bytes(int64_t elements, pd_dtype type);

/* Assigns n blocks to `ranks` (>= 1) ranks. bytes[i] is the size of block i; sizes are not negative, and their sum fits
 * int64_t. The largest block comes first. Each goes to the rank with the fewest bytes so far; of equal ranks, to the
 * lowest. owner[i] gets the rank of block i, rank_bytes[r] the sum of the sizes of rank r's blocks. Takes time n log n
 * + n * ranks.
 *
 * PD_FAILED_PRECONDITION: a rank owns no block, which Meta's Shampoo refuses. owner and rank_bytes are filled all the
 * same.
 *
 * PD_NO_MEMORY: owner and rank_bytes are not filled. */
int pd_assign_blocks(int *owner, int64_t *rank_bytes, const int64_t *bytes, size_t n, int ranks, pd_error *err);

/* Returns how many bytes the all-gather of a step moves in Meta's DDP Shampoo, where every rank contributes as many
 * bytes as the rank that owns most. INT64_MAX: the number does not fit. */
int64_t pd_gathered_bytes(const int64_t *rank_bytes, int ranks);

#endif
