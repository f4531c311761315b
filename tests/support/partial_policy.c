/* partial_policy.c - a round policy for tests, which closes a round at its deadline without some ranks. */
#include "partial_policy.h"

#include "round.h"

enum { LEAST = 2 };

static pd_admit admit(const pd_round *round, uint32_t rank, uint64_t closed, uint64_t step)
{
    (void)round, (void)rank;
    if (step <= closed) return PD_ADMIT_LATE;
    return step == closed + 1 ? PD_ADMIT_NEW : PD_ADMIT_EARLY;
}

static bool chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return chunk->came == round->members->expected || (round->closing && chunk->came >= LEAST);
}

static bool round_is_complete(const pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (!chunk_is_complete(round, &round->chunks[c])) return false;
    return true;
}

static pd_overdue overdue(const pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].came < LEAST) return PD_OVERDUE_REPORT;
    return PD_OVERDUE_CLOSE;
}

const pd_policy partial_policy = { "partial", admit, chunk_is_complete, round_is_complete, overdue };
