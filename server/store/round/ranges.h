/* ranges.h - which elements of a ranged parameter each rank contributes, in the order of the ranks and in that of
 * the elements. Pure. */
#ifndef PD_RANGES_H
#define PD_RANGES_H

#include <stdbool.h>
#include <stdint.h>

/* The elements [start, end) that a rank contributes; none where start == end. */
typedef struct pd_range {
    int64_t  start, end;
    bool     known;             /* the rank has declared it; until then the rank may have any elements */
    uint64_t initialiser;       /* nonce of the process whose initial weights of it came last */
    /* Three lists of ranks: entry i of each list is stored in the range of rank i. The first two hold the ranks whose
     * range is known and not empty, in the order of their starts and of their ends. The third holds the ranks of the
     * sweep under way, ascending. */
    uint32_t by_start, by_end, swept;
} pd_range;

/* The ranges of all ranks of a parameter. */
typedef struct pd_ranges {
    pd_range *at;               /* by rank; NULL: every rank contributes every element */
    uint32_t  n_known;          /* ranges that are known; */
    uint32_t  n_ordered;        /* of them those that are not empty */
} pd_ranges;

/* Makes the range of a rank known. It was not. */
void pd_ranges_set(pd_ranges *ranges, uint32_t rank, int64_t start, int64_t end);
/* Makes it unknown again. It was known. */
void pd_ranges_unset(pd_ranges *ranges, uint32_t rank);

/* Counts the ranges that start, resp. end, at element `most` or before. */
uint32_t pd_ranges_starting(const pd_ranges *ranges, int64_t most);
uint32_t pd_ranges_ending(const pd_ranges *ranges, int64_t most);
/* The i-th start, resp. end, in ascending order; i < n_ordered. */
static inline int64_t pd_ranges_start(const pd_ranges *ranges, uint32_t i)
{
    return ranges->at[ranges->at[i].by_start].start;
}
static inline int64_t pd_ranges_end(const pd_ranges *ranges,
                                    uint32_t i)   { return ranges->at[ranges->at[i].by_end].end; }

#endif
