/* assignment.c - distributes blocks to ranks, as Meta's DDP Shampoo does. */
#include "assignment.h"

#include <assert.h>
#include <stdlib.h>

int64_t pd_assigned_bytes(int64_t elements, pd_dtype type)
{
    int64_t bytes;

    if (__builtin_mul_overflow(elements, (int64_t)pd_dtype_size(type), &bytes) ||
        __builtin_add_overflow(bytes, (int64_t)63, &bytes))
        return INT64_MAX;
    return bytes - bytes % 64;
}

static int lightest(const int64_t *rank_bytes, int ranks)
{
    int best = 0;

    for (int r = 1; r < ranks; r++)
        if (rank_bytes[r] < rank_bytes[best]) best = r;
    return best;
}

/* Checks that each of `ranks` ranks owns at least one of n blocks. owner[i] is the rank of block i. A block of 0 bytes
 * counts, too. */
static int check_owners(const int *owner, size_t n, int ranks, pd_error *err)
{
    bool *owns = calloc((size_t)ranks, sizeof *owns);
    int idle = 0;

    if (owns == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) owns[owner[i]] = true;
    while (idle < ranks && owns[idle]) idle++;
    free(owns);
    if (idle == ranks) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "Some workers have no parameters to work on: %zu blocks for %d ranks, and rank %d owns none. Use "
                   "smaller groups, or smaller blocks",
                   n, ranks, idle);
}

int pd_assign_blocks(int *owner, int64_t *rank_bytes, const int64_t *bytes, size_t n, int ranks, pd_error *err)
{
    pd_load *load = malloc((n > 0 ? n : 1) * sizeof *load);

    assert(ranks >= 1);
    if (load == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) load[i] = (pd_load){ (double)bytes[i], i };
    pd_load_sort(load, n);
    for (int r = 0; r < ranks; r++) rank_bytes[r] = 0;
    for (size_t i = 0; i < n; i++) {
        size_t block = (size_t)load[i].place;
        owner[block] = lightest(rank_bytes, ranks);
        rank_bytes[owner[block]] += bytes[block];
    }
    free(load);
    return check_owners(owner, n, ranks, err);
}

int64_t pd_gathered_bytes(const int64_t *rank_bytes, int ranks)
{
    int64_t largest = 0, all;

    for (int r = 0; r < ranks; r++)
        if (rank_bytes[r] > largest) largest = rank_bytes[r];
    return __builtin_mul_overflow(largest, (int64_t)ranks, &all) ? INT64_MAX : all;
}
