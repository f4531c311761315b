/* stretch.h - finds stretches, which are consecutive elements that the same ranks contribute, and elements that no
 * rank gives. Step thread. */
#ifndef PD_STRETCH_H
#define PD_STRETCH_H

#include "round.h"

/* Returns the stretch that begins at element `first`: it ends where the next range begins or ends, at most at `end`. */
pd_run pd_round_stretch(const pd_round *round, int64_t first, int64_t end);
/* Return whether the rank contributes the stretch, and the number of ranks that do. */
bool pd_round_covers(const pd_round *round, uint32_t rank, pd_run stretch);
uint32_t pd_round_count_covering(const pd_round *round, pd_run stretch);

/* Finds the first gap: elements [gap->start, gap->end) that are in no known range. With `given` the ranges of absent
 * ranks do not count. Returns false if there is no gap. */
bool pd_round_gap(const pd_round *round, bool given, pd_range *gap);

/* How much of the parameter the contributions of a complete round give. NOTHING: every rank is absent. PART: some
 * elements lie only in ranges of absent ranks. */
typedef enum pd_given { PD_GIVEN_NOTHING, PD_GIVEN_PART, PD_GIVEN_ALL } pd_given;
pd_given pd_round_given(const pd_round *round);

/* A loop over all stretches between two elements, each with the ranks that contribute it. A round can have only one
 * sweep at a time, because the list of these ranks is stored in the round's ranges. */
typedef struct pd_sweep {
    pd_round *round;
    pd_run run;            /* the stretch that the sweep has reached */
    int64_t end;           /* the sweep ends before this element */
    uint32_t n;            /* number of ranks that contribute the present stretch: pd_sweep_rank */
    uint32_t starts, ends; /* number of ranges that the sweep has entered so far; number of ranges that it has left */
} pd_sweep;
/* Begins a sweep over the elements [first, end). pd_sweep_next then moves to the first stretch. */
pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end);
/* Moves to the next stretch. Returns false if there is none. */
bool pd_sweep_next(pd_sweep *sweep);
/* Returns the i-th rank of those that contribute the present stretch, in ascending order; 0 <= i < n. */
static inline uint32_t pd_sweep_rank(const pd_sweep *sweep, uint32_t i)
{
    return sweep->round->ranges.at != NULL ? sweep->round->ranges.at[i].swept : i;
}

#endif
