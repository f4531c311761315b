/* stretch.h - finds stretches, which are consecutive elements of a parameter that the same ranks contribute, and
 * gaps, which are elements that no rank gives. Step thread. */
#ifndef PD_STRETCH_H
#define PD_STRETCH_H

#include "round.h"

/* Returns the stretch from element `first` on: it ends where the next range
 * begins or ends, but not after `end`. */
pd_range pd_round_common_range(const pd_round *round, int64_t first, int64_t end);
/* Return whether the rank contributes the elements of the stretch, and the number of ranks that contribute them. */
bool pd_round_covers(const pd_round *round, uint32_t rank, pd_range stretch);
uint32_t pd_round_count_covering(const pd_round *round, pd_range stretch);

/* Finds the first gap: elements [gap->start, gap->end) that are in no known range. With `given`, ranges of ranks that
 * have reported no gradient count as missing, too. Returns false if there is no gap. */
bool pd_round_gap(const pd_round *round, bool given, pd_rank_range *gap);

/* How much of the parameter has a gradient in a complete round. NOTHING: every rank has reported that it has none.
 * PART: for some elements, all ranks that contribute them have reported so. */
typedef enum pd_given { PD_GIVEN_NOTHING, PD_GIVEN_PART, PD_GIVEN_ALL } pd_given;
pd_given pd_round_given(const pd_round *round);

/* A sweep: a loop over all stretches between two elements, which tells for each the ranks that contribute it. A round
 * can have only one sweep at a time, because the list of these ranks is stored in the round's ranges. */
typedef struct pd_sweep {
    pd_round *round;
    pd_range run; /* the stretch that the sweep has reached */
    int64_t end;  /* the sweep ends before this element of the parameter */
    /* number of ranks that contribute the stretch that the sweep has reached */
    uint32_t n;
    /* number of ranges (in the order of their starts) that the sweep has entered so far; number of ranges (in the order
     * of their ends) that it has left */
    uint32_t starts, ends;
} pd_sweep;
/* Begins a sweep over the elements [first, end). The first pd_sweep_next moves to the first stretch. */
pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end);
/* Moves the sweep to the next stretch. Returns false if there is none. */
bool pd_sweep_next(pd_sweep *sweep);
/* Returns the i-th of the ranks that contribute the stretch which the sweep has reached, in ascending order of ranks; i
 * from 0 to n - 1. */
static inline uint32_t pd_sweep_rank(const pd_sweep *sweep, uint32_t i)
{
    return sweep->round->ranges.at != NULL ? sweep->round->ranges.at[i].swept : i;
}

#endif
