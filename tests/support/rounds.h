/* rounds.h - initialises rounds for tests that have no store. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "round_ranges.h"

/* Initialises a round over chunks that belong to no parameter. The round waits for all ranks. */
static inline void lay_round(pd_round *round, int64_t elements, int64_t chunk_elements, uint32_t world,
                             pd_chunk *chunks, pd_contribution *slots, pd_rank_range *ranges)
{
    static pd_membership members;

    if (world <= PD_MAX_WORLD)
        pd_membership_all(&members, world);
    else
        /* more ranks than a job may have, for tests of large rounds */
        members = (pd_membership){ .ranks = world, .expected = world };
    pd_round_init(round, &(pd_round_layout){ .policy = &pd_policy_sync,
                                             .members = &members,
                                             .elements = elements,
                                             .chunk_elements = chunk_elements,
                                             .chunks = chunks,
                                             .contributions = slots,
                                             .ranges = ranges });
}

#endif
