/* ranges.h - the range of elements that each rank contributes of a ranged parameter; the ranges are found by rank,
 * and in the order of their starts and ends. Pure. */
#ifndef PD_RANGES_H
#define PD_RANGES_H

#include <stdbool.h>
#include <stdint.h>

/* The elements [start, end) that a rank contributes. If start == end there are none. */
typedef struct pd_range {
    int64_t start, end;
    bool known;           /* the rank has declared the range; until then it may have any elements */
    uint64_t initialiser; /* nonce of the process that last sent initial weights for this range */
    /* Entries of three lists of ranks; entry i of each list is stored in the range of rank i, to save memory.
     * by_start and by_end list the ranks whose range is known and not empty, sorted by start and by end. `swept`
     * lists the ranks of the sweep under way (stretch.h), sorted by rank. */
    uint32_t by_start, by_end, swept;
} pd_range;

/* The ranges of all ranks in one parameter. */
typedef struct pd_ranges {
    pd_range *at;       /* the ranges by rank; NULL: every rank contributes every element */
    uint32_t n_known;   /* number of known ranges */
    uint32_t n_ordered; /* number of known ranges that are not empty */
} pd_ranges;

/* Sets the range of a rank, which was not known before. */
void pd_ranges_set(pd_ranges *ranges, uint32_t rank, int64_t start, int64_t end);
/* Makes the known range of a rank unknown again. */
void pd_ranges_unset(pd_ranges *ranges, uint32_t rank);

/* Count the ranges that start at element `most` or before, and those that end there or before. */
uint32_t pd_ranges_starting(const pd_ranges *ranges, int64_t most);
uint32_t pd_ranges_ending(const pd_ranges *ranges, int64_t most);
/* Return the i-th smallest start, and the i-th smallest end, of all ranges that are not empty; i < n_ordered. */
static inline int64_t pd_ranges_start(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_start].start;
}
static inline int64_t pd_ranges_end(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_end].end;
}

#endif
