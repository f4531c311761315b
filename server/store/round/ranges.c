/* ranges.c - keeps the ranges that ranks contribute of a parameter sorted, by their starts and by their ends. */
#include "ranges.h"

#include <assert.h>

/* Returns how many of the sorted starts (or ends) of ranges are at most `most`. nth(ranges, i) must return the i-th
 * smallest start (or end). Binary search. */
static uint32_t count_upto(const pd_ranges *ranges, int64_t (*nth)(const pd_ranges *, uint32_t), int64_t most)
{
    uint32_t low = 0, high = ranges->n_ordered;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (nth(ranges, middle) <= most)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t pd_ranges_starting(const pd_ranges *ranges, int64_t most)
{
    return count_upto(ranges, pd_ranges_start, most);
}
uint32_t pd_ranges_ending(const pd_ranges *ranges, int64_t most)
{
    return count_upto(ranges, pd_ranges_end, most);
}

static void order(pd_ranges *ranges, uint32_t rank)
{
    pd_rank_range *at = ranges->at;
    uint32_t start = pd_ranges_starting(ranges, at[rank].start), end = pd_ranges_ending(ranges, at[rank].end);

    for (uint32_t i = ranges->n_ordered; i > start; i--) at[i].by_start = at[i - 1].by_start;
    for (uint32_t i = ranges->n_ordered; i > end; i--) at[i].by_end = at[i - 1].by_end;
    at[start].by_start = at[end].by_end = rank;
    ranges->n_ordered++;
}

static void unorder(pd_ranges *ranges, uint32_t rank)
{
    pd_rank_range *at = ranges->at;
    uint32_t start = 0, end = 0;

    while (at[start].by_start != rank) start++;
    while (at[end].by_end != rank) end++;
    ranges->n_ordered--;
    for (uint32_t i = start; i < ranges->n_ordered; i++) at[i].by_start = at[i + 1].by_start;
    for (uint32_t i = end; i < ranges->n_ordered; i++) at[i].by_end = at[i + 1].by_end;
}

void pd_ranges_set(pd_ranges *ranges, uint32_t rank, int64_t start, int64_t end)
{
    pd_rank_range *range = &ranges->at[rank];

    assert(!range->known && start <= end);
    range->start = start;
    range->end = end;
    range->known = true;
    ranges->n_known++;
    if (start < end) order(ranges, rank);
}

void pd_ranges_unset(pd_ranges *ranges, uint32_t rank)
{
    pd_rank_range *range = &ranges->at[rank];

    assert(range->known);
    if (range->start < range->end) unorder(ranges, rank);
    ranges->n_known--;
    range->start = range->end = 0;
    range->known = false;
    range->initialiser = 0;
}
