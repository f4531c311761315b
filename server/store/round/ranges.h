/* ranges.h - the range of elements that each rank contributes of a ranged parameter (one of which a rank contributes
 * only a part). Ranges are found by rank, and in the order of their starts and of their ends. Pure. */
#ifndef PD_RANGES_H
#define PD_RANGES_H

#include <stdbool.h>
#include <stdint.h>

/* The elements [start, end) of a parameter that a rank contributes. If start == end the rank contributes none. */
typedef struct pd_rank_range {
    int64_t start, end;
    bool known;           /* the rank has declared this range; until then it may contribute any elements */
    uint64_t initialiser; /* nonce of the process that last sent initial weights for this range */
    /* Entries of three lists of ranks. Entry i of each list is stored in the range of rank i, to save memory.
     * by_start and by_end list the ranks whose range is known and not empty, sorted by the start and by the end of
     * the range. `swept` is a list in ascending order that a sweep (a loop over the elements, stretch.h) uses: the
     * ranks that contribute the elements it has reached. */
    uint32_t by_start, by_end, swept;
} pd_rank_range;

/* The ranges that all ranks contribute of one parameter. */
typedef struct pd_ranges {
    pd_rank_range *at; /* the ranges by rank; NULL: the parameter is not ranged, every rank contributes every element */
    uint32_t n_known;  /* number of ranks whose range is known */
    uint32_t n_ordered; /* number of ranks whose range is known and not empty */
} pd_ranges;

/* Sets the range that a rank contributes. It must not have been known before. */
void pd_ranges_set(pd_ranges *ranges, uint32_t rank, int64_t start, int64_t end);
/* Forgets the known range of a rank, which may then contribute any elements. */
void pd_ranges_unset(pd_ranges *ranges, uint32_t rank);

/* Count the ranges whose start (pd_ranges_starting), or whose end (pd_ranges_ending), is at most element `most`. */
uint32_t pd_ranges_starting(const pd_ranges *ranges, int64_t most);
uint32_t pd_ranges_ending(const pd_ranges *ranges, int64_t most);
/* Return the i-th smallest start, and the i-th smallest end, of all ranges that are known and not empty; i from 0 to
 * n_ordered - 1. */
static inline int64_t pd_ranges_start(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_start].start;
}
static inline int64_t pd_ranges_end(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_end].end;
}

#endif
