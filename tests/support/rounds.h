/* rounds.h - initialises rounds for tests that have no store. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "round_ranges.h"

/* Initialises a round over chunks that belong to no parameter. The round waits for all ranks. */
static inline void lay_round(pd_round *round, int64_t elements, int64_t chunk_elements, uint32_t world,
                             pd_chunk *chunks, pd_contribution *slots, pd_rank_range *ranges)
{
    static pd_rank_set expected;

    if (world <= PD_MAX_WORLD)
        pd_rank_set_all(&expected, world);
    else
        /* more ranks than a job may have, for tests of large rounds */
        expected = (pd_rank_set){ .ranks = world, .n = world };
    pd_round_init(round, &(pd_round_layout){ .expected = &expected,
                                             .elements = elements,
                                             .chunk_elements = chunk_elements,
                                             .chunks = chunks,
                                             .contributions = slots,
                                             .ranges = ranges });
}

#endif
