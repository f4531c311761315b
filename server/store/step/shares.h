/* shares.h - leases shares to ranks, so that each share of a job is used once although ranks join, are late and leave.
 *
 * A share is a number, for one local batch; a worker makes the indices of its samples from it (paramd.StepSampler in
 * Python). Each share is in one of four places: leased to a rank, in the pool, used, or not given yet (`next` and
 * above). Step thread. Pure: no clock, no randomness; the same calls in the same order give the same leases.
 *
 *     pd_shares_join(shares, r, 1)                             at the Declare of rank r
 *     pd_shares_count(shares, r), pd_shares_give(shares, r, want)      when the step of fragment 0 closes, for each
 *                                                              counted rank, in ascending order
 *     pd_shares_give(shares, r, want)                          rank r is late, and carries its data over
 *     pd_shares_remove(shares, r)                              rank r was removed
 *
 * If all ranks join in ascending order, all count in each step and each wants 1, then rank r of n uses share
 * (u - 1) * n + r in step u.
 *
 * A rank that is not counted keeps its leases. It repeats their shares, or carries their data over and gets one lease
 * more: up to PD_LEASES, which are all used when the rank counts. */
#ifndef PD_SHARES_H
#define PD_SHARES_H

#include "archive.h"
#include "request.h"

#define PD_SHARES_WANT_MOST 65536 /* most shares of a lease */

/* Shares that a rank has got together: n ranges, ascending, none adjacent to another. */
typedef struct pd_lease {
    uint32_t n;
    pd_share_range ranges[PD_LEASE_RANGES];
} pd_lease;

/* Why the leases of a rank change between steps. */
typedef enum pd_lease_act {
    PD_LEASE_JOIN, /* the rank joins, and gets its first lease: pd_shares_join */
    PD_LEASE_MORE, /* the rank carries its data over, and gets one more: pd_shares_give */
    PD_LEASE_END   /* the rank is removed: pd_shares_remove */
} pd_lease_act;

/* A change of leases that does not follow from the set of a step. */
typedef struct pd_lease_change {
    uint64_t number; /* 1 + the number of such changes of the job before */
    pd_lease_act act;
    uint32_t rank, wants; /* wants: number of shares of the new lease; END: 0 */
} pd_lease_change;

/* Numbers for operators' lists. */
typedef struct pd_share_counts {
    uint64_t next;                 /* least share that was never given */
    uint64_t used, pooled, leased; /* numbers of shares; their sum is `next` */
    size_t pool_ranges;            /* number of ranges in the pool */
} pd_share_counts;

typedef struct pd_shares pd_shares;

/* Makes the shares of a job with `ranks` ranks, none of which has joined. PD_NO_MEMORY. */
int pd_shares_make(pd_shares **out, uint32_t ranks);
void pd_shares_free(pd_shares *shares); /* accepts NULL */

/* Lets a rank join, reserves memory for all that its leases may need later, and gives it a lease of `want` shares. A
 * rank that has joined before keeps its leases and gets none: a new process at a rank repeats the shares of the old
 * one. PD_NO_MEMORY: nothing has changed. No other function of a rank allocates memory, so none fails. */
int pd_shares_join(pd_shares *shares, uint32_t rank, uint32_t want);
/* Gives a rank that has joined one more lease, and returns it; valid until the next call for this rank. NULL: `want` is
 * 0, or the rank has PD_LEASES leases.
 *
 * The lease has `want` shares, at most PD_SHARES_WANT_MOST: the least ones of the pool, and new ones after the pool is
 * empty. It has fewer shares only if they would be more than PD_LEASE_RANGES ranges, because the pool is fragmented. A
 * worker so takes the number of its shares from the lease. */
const pd_lease *pd_shares_give(pd_shares *shares, uint32_t rank, uint32_t want);
/* Marks all leased shares of the rank as used: the rank counts in a step. */
void pd_shares_count(pd_shares *shares, uint32_t rank);
/* Moves the leased shares of the rank to the pool. The rank must join before it gets leases again. Does nothing for a
 * rank that has not joined.
 *
 * Takes time proportional to the number of ranges in the pool. These are at most as many as shares were leased when the
 * pool was last empty. */
void pd_shares_remove(pd_shares *shares, uint32_t rank);

/* Returns the number of the last change (pd_lease_change) that the shares have had; 0: none. Images contain it. */
uint64_t pd_shares_changes(const pd_shares *shares);
/* Counts a change that was just made by one of the functions above. Returns its number. */
uint64_t pd_shares_changed(pd_shares *shares);
/* Reserves the memory of so many calls of pd_shares_join: these then do not fail. PD_NO_MEMORY. */
int pd_shares_reserve(pd_shares *shares, size_t joins);
/* Makes a change again that was made before a restart, and counts it. Does nothing if the shares have had it. Memory
 * was reserved for it. */
void pd_shares_repeat(pd_shares *shares, const pd_lease_change *change);

/* Returns the leases of a rank, oldest first, and their number in *n; valid until the next call for this rank. */
const pd_lease *pd_shares_of(const pd_shares *shares, uint32_t rank, uint32_t *n);
/* Returns the least share that is not used: all shares of a data set with `total` shares are used once this is `total`
 * or more. */
uint64_t pd_shares_least_unused(const pd_shares *shares);
pd_share_counts pd_shares_counts(const pd_shares *shares);
/* Fills *out with all leases of a rank; `step` stays as it is. */
void pd_shares_fill(const pd_shares *shares, uint32_t rank, pd_rank_leases *out);
/* Returns whether the rank has joined. */
bool pd_shares_has(const pd_shares *shares, uint32_t rank);

/* Writes the shares to an image, or reads them: a section "shares". If the image has another number of ranks (a job
 * that was resized), its leased shares are moved to the pool when they are read, and no rank has joined. After an error
 * the shares are unchanged. PD_DATA_LOSS: a share would be at two places, or the image is damaged in another way. */
void pd_shares_visit(pd_archive *archive, pd_shares *shares);

#endif
