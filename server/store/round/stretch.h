/* stretch.h - runs of elements that the same ranks contribute, and which elements nobody has given. Step thread. */
#ifndef PD_STRETCH_H
#define PD_STRETCH_H

#include "round.h"

/* Returns the elements from `first` on, at most up to `end`, that the same ranks contribute: up to where the next range
 * begins or ends. */
pd_run pd_round_stretch(const pd_round *round, int64_t first, int64_t end);
/* Returns whether the rank contributes a stretch, and how many ranks do. */
bool     pd_round_covers(const pd_round *round, uint32_t rank, pd_run stretch);
uint32_t pd_round_count_covering(const pd_round *round, pd_run stretch);

/* Finds the first elements [gap->start, gap->end) that are in no known range, or with `given` in none of a rank that is
 * not absent. False: there are none. */
bool pd_round_gap(const pd_round *round, bool given, pd_range *gap);

/* What has come of a complete round. NOTHING: every rank is absent. PART: some elements lie in ranges of absent ranks
 * alone. */
typedef enum pd_given { PD_GIVEN_NOTHING, PD_GIVEN_PART, PD_GIVEN_ALL } pd_given;
pd_given pd_round_given(const pd_round *round);

/* The stretches of a run of elements from the first to the last, each with the ranks that contribute it. One sweep of a
 * round at a time. */
typedef struct pd_sweep {
    pd_round *round;
    pd_run    run;              /* the stretch */
    int64_t   end;              /* of the run of elements */
    uint32_t  n;                /* ranks that contribute the stretch: pd_sweep_rank */
    uint32_t  starts, ends;     /* ranges that begin, resp. end, before the next stretch */
} pd_sweep;
/* Begins a sweep over elements [first, end). The first stretch is reached with pd_sweep_next. */
pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end);
/* Moves to the next stretch. False: there is none. */
bool pd_sweep_next(pd_sweep *sweep);
/* Returns the i-th of the ranks that contribute the stretch, in ascending order: i is from 0 to n - 1. */
static inline uint32_t pd_sweep_rank(const pd_sweep *sweep, uint32_t i)
{
    return sweep->round->ranges.at != NULL ? sweep->round->ranges.at[i].swept : i;
}

#endif
