/* round_ranges.h - finds common ranges (consecutive elements of a parameter that the same ranks contribute) and gaps
 * (elements that no rank contributes). A rank's range (pd_rank_range) is what one rank has declared; common ranges lie
 * between the ends of all of them. Step thread. */
#ifndef PD_ROUND_RANGES_H
#define PD_ROUND_RANGES_H

#include "round.h"

/* Returns the common range from element `first` on: it ends where the range of a rank begins or ends, but not after
 * `end`. */
pd_range pd_round_common_range(const pd_round *round, int64_t first, int64_t end);
/* pd_round_covers returns whether the rank contributes the elements of a common range. pd_round_count_covering returns
 * the number of ranks that do. */
bool pd_round_covers(const pd_round *round, uint32_t rank, pd_range range);
uint32_t pd_round_count_covering(const pd_round *round, pd_range range);

/* Finds the first gap: elements [gap->start, gap->end) that no known range has. If `given` is true, the ranges of ranks
 * that have reported no gradient do not count. Returns false if there is no gap. */
bool pd_round_gap(const pd_round *round, bool given, pd_rank_range *gap);
/* Finds the first gap if only the ranges of the ranks `of` count. */
bool pd_round_gap_of(const pd_round *round, const pd_rank_set *of, pd_rank_range *gap);

/* How much of the parameter has a gradient in a complete round. NOTHING: no element, since every rank has reported that
 * it has no gradient. PART: some elements have none, since all ranks that contribute them have reported so. */
typedef enum pd_given { PD_GIVEN_NOTHING, PD_GIVEN_PART, PD_GIVEN_ALL } pd_given;
pd_given pd_round_given(const pd_round *round);

/* A loop over all common ranges between two elements, with the ranks that contribute each. A round can have only one
 * sweep at a time, because the list of these ranks is stored in the round's ranges. */
typedef struct pd_sweep {
    pd_round *round;
    pd_range range;        /* the common range that the sweep has reached */
    int64_t end;           /* the sweep ends before this element */
    uint32_t n;            /* number of ranks that contribute `range` */
    uint32_t starts, ends; /* number of ranks' ranges that the sweep has entered; number that it has left */
} pd_sweep;
/* Begins a sweep over the elements [first, end). The first pd_sweep_next moves to the first common range. */
pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end);
/* Moves the sweep to the next common range. Returns false if there is none. */
bool pd_sweep_next(pd_sweep *sweep);
/* Returns the i-th rank, in ascending order, that contributes the present common range; i from 0 to n - 1. */
static inline uint32_t pd_sweep_rank(const pd_sweep *sweep, uint32_t i)
{
    return sweep->round->ranges.at != NULL ? sweep->round->ranges.at[i].swept : i;
}

#endif
