/* round_ranges.c - finds common ranges and gaps from the sorted ranges of the ranks. */
#include "round_ranges.h"

pd_range pd_round_common_range(const pd_round *round, int64_t first, int64_t end)
{
    uint32_t start, finish;

    if (round->ranges.at == NULL) return (pd_range){ first, end - first };
    start = pd_ranges_starting(&round->ranges, first);
    finish = pd_ranges_ending(&round->ranges, first);
    if (start < round->ranges.n_ordered && pd_ranges_start(&round->ranges, start) < end)
        end = pd_ranges_start(&round->ranges, start);
    if (finish < round->ranges.n_ordered && pd_ranges_end(&round->ranges, finish) < end)
        end = pd_ranges_end(&round->ranges, finish);
    return (pd_range){ first, end - first };
}

uint32_t pd_round_count_covering(const pd_round *round, pd_range range)
{
    if (round->ranges.at == NULL) return pd_round_ranks(round);
    return pd_round_ranks(round) - round->ranges.n_known + pd_ranges_starting(&round->ranges, range.first) -
           pd_ranges_ending(&round->ranges, range.first);
}

bool pd_round_covers(const pd_round *round, uint32_t rank, pd_range range)
{
    pd_rank_range own = pd_round_range(round, rank);

    return own.start <= range.first && own.end >= range.first + range.n;
}

/* Returns whether a rank's range counts when gaps are searched. */
typedef bool covers_it(const pd_round *round, uint32_t rank, const void *of);

static bool has_declared(const pd_round *round, uint32_t rank, const void *of)
{
    (void)round, (void)rank, (void)of;
    return true;
}

static bool has_gradient(const pd_round *round, uint32_t rank, const void *of)
{
    (void)of;
    return !pd_round_is_absent(round, rank) && pd_round_counts(round, rank);
}

static bool is_in_set(const pd_round *round, uint32_t rank, const void *of)
{
    (void)round;
    return pd_rank_set_has(of, rank);
}

static bool find_gap(const pd_round *round, covers_it *covers, const void *of, pd_rank_range *gap)
{
    *gap = (pd_rank_range){ .start = 0, .end = round->elements };
    for (uint32_t i = 0; i < round->ranges.n_ordered; i++) {
        uint32_t rank = round->ranges.at[i].by_start;
        const pd_rank_range *range = &round->ranges.at[rank];
        if (!covers(round, rank, of)) continue;
        if (range->start > gap->start) {
            gap->end = range->start;
            return true;
        }
        if (range->end > gap->start) gap->start = range->end;
    }
    return gap->start < round->elements;
}

bool pd_round_gap(const pd_round *round, bool given, pd_rank_range *gap)
{
    return find_gap(round, given ? has_gradient : has_declared, NULL, gap);
}

bool pd_round_gap_of(const pd_round *round, const pd_rank_set *of, pd_rank_range *gap)
{
    return find_gap(round, is_in_set, of, gap);
}

pd_given pd_round_given(const pd_round *round)
{
    uint32_t absent = 0, given = 0;
    pd_rank_range gap;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        if (!pd_round_counts(round, rank)) continue;
        if (pd_round_is_absent(round, rank))
            absent++;
        else
            given += pd_round_count_chunks(round, rank) > 0;
    }
    if (given == 0) return PD_GIVEN_NOTHING;
    return (absent > 0 || round->set != NULL) && round->ranges.at != NULL && pd_round_gap(round, true, &gap)
               ? PD_GIVEN_PART
               : PD_GIVEN_ALL;
}

pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end)
{
    pd_sweep sweep = { .round = round, .range = { first, 0 }, .end = end };

    if (round->ranges.at == NULL) {
        sweep.n = pd_round_ranks(round);
        return sweep;
    }
    sweep.starts = pd_ranges_starting(&round->ranges, first);
    sweep.ends = pd_ranges_ending(&round->ranges, first);
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        pd_rank_range range = pd_round_range(round, rank);
        if (range.start <= first && range.end > first) round->ranges.at[sweep.n++].swept = rank;
    }
    return sweep;
}

/* Returns the index of the rank in the list of a sweep, or, if the rank is not in it, the
 * index at which the rank would be inserted. */
static uint32_t place_of(const pd_sweep *sweep, uint32_t rank)
{
    uint32_t low = 0, high = sweep->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pd_sweep_rank(sweep, middle) < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void let_in(pd_sweep *sweep, uint32_t rank)
{
    pd_rank_range *ranges = sweep->round->ranges.at;
    uint32_t place = place_of(sweep, rank);

    for (uint32_t i = sweep->n++; i > place; i--) ranges[i].swept = ranges[i - 1].swept;
    ranges[place].swept = rank;
}

static void let_out(pd_sweep *sweep, uint32_t rank)
{
    pd_rank_range *ranges = sweep->round->ranges.at;

    sweep->n--;
    for (uint32_t i = place_of(sweep, rank); i < sweep->n; i++) ranges[i].swept = ranges[i + 1].swept;
}

bool pd_sweep_next(pd_sweep *sweep)
{
    const pd_round *round = sweep->round;
    int64_t at = sweep->range.first + sweep->range.n;

    if (at >= sweep->end) return false;
    for (; sweep->ends < round->ranges.n_ordered && pd_ranges_end(&round->ranges, sweep->ends) <= at; sweep->ends++)
        let_out(sweep, round->ranges.at[sweep->ends].by_end);
    for (; sweep->starts < round->ranges.n_ordered && pd_ranges_start(&round->ranges, sweep->starts) <= at;
         sweep->starts++)
        let_in(sweep, round->ranges.at[sweep->starts].by_start);
    sweep->range = pd_round_common_range(round, at, sweep->end);
    return true;
}
