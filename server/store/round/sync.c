/* sync.c - the policy of synchronous rounds: a round waits for every rank that is expected. */
#include "policies.h"
#include "round.h"

static pd_admit admit(const pd_round *round, uint32_t rank, uint64_t closed, uint64_t step)
{
    (void)round, (void)rank;
    /* The answer is not LATE (the round has closed without the rank), because a round of this policy (which says when a
     * round is complete) closes only after every rank has contributed. */
    if (step <= closed) return PD_ADMIT_DUPLICATE;
    return step == closed + 1 ? PD_ADMIT_NEW : PD_ADMIT_EARLY;
}

static bool chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return chunk->came == round->members->expected;
}

static bool round_is_complete(const pd_round *round)
{
    return round->missing == 0;
}

static pd_overdue overdue(const pd_round *round)
{
    (void)round;
    return PD_OVERDUE_REPORT;
}

const pd_policy pd_policy_sync = { "sync", admit, chunk_is_complete, round_is_complete, overdue };
