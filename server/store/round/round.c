/* round.c - stores what each rank has contributed to each chunk of a round, and the ranges of the ranks. */
#include "round.h"

#include "mutant.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void pd_rank_set_none(pd_rank_set *set, uint32_t ranks)
{
    assert(ranks <= PD_MAX_WORLD);
    *set = (pd_rank_set){ .ranks = ranks };
}

void pd_rank_set_all(pd_rank_set *set, uint32_t ranks)
{
    pd_rank_set_none(set, ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) pd_rank_set_add(set, rank);
}

void pd_rank_set_add(pd_rank_set *set, uint32_t rank)
{
    if (pd_rank_set_has(set, rank)) return;
    set->at[rank / 64] |= (uint64_t)1 << rank % 64;
    set->n++;
}

void pd_rank_set_remove(pd_rank_set *set, uint32_t rank)
{
    if (!pd_rank_set_has(set, rank)) return;
    set->at[rank / 64] &= ~((uint64_t)1 << rank % 64);
    set->n--;
}

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

pd_rank_range pd_round_range(const pd_round *round, uint32_t rank)
{
    return round->ranges.at != NULL && round->ranges.at[rank].known
               ? round->ranges.at[rank]
               : (pd_rank_range){ .start = 0, .end = round->elements };
}

pd_range pd_round_chunk_range(const pd_round *round, const pd_chunk *chunk, uint32_t rank)
{
    pd_rank_range range = pd_round_range(round, rank);
    int64_t first = range.start > chunk->first ? range.start : chunk->first;
    int64_t end = range.end < chunk->first + chunk->n ? range.end : chunk->first + chunk->n;

    return (pd_range){ first, end > first ? end - first : 0 };
}

/* The chunks of which a rank's range has elements: indices `first` to `end` - 1. */
typedef struct pd_span {
    uint32_t first, end;
} pd_span;

static pd_span span_of(const pd_round *round, uint32_t rank)
{
    pd_rank_range range = pd_round_range(round, rank);

    if (range.start == range.end) return (pd_span){ 0, 0 };
    return (pd_span){ (uint32_t)(range.start / round->chunk_elements),
                      (uint32_t)((range.end - 1) / round->chunk_elements) + 1 };
}

uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.end - span.first;
}

uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
        n += (round->ranges.at == NULL || round->ranges.at[rank].known) &&
             chunk->contributions[rank].state != PD_CONTRIBUTION_OUTSIDE;
    return n;
}

static void move_prefix(pd_chunk *chunk)
{
    while (chunk->prefix < chunk->came && chunk->contributions[chunk->prefix].state != PD_CONTRIBUTION_EMPTY)
        chunk->prefix++;
}

/* Marks the rank's contribution to a chunk as outside if its range has no element of the chunk. Returns whether this
 * made the chunk complete, because it does not wait for the rank any more. */
static bool leave_out(const pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    if (pd_round_chunk_range(round, chunk, rank).n > 0) return false;
    chunk->contributions[rank].state = PD_CONTRIBUTION_OUTSIDE;
    chunk->came++;
    return !round->together && pd_chunk_is_complete(round, chunk);
}

void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end)
{
    pd_rank_range *range = &round->ranges.at[rank];

    assert(!range->known && start <= end && end <= round->elements);
    range->start = start;
    range->end = end;
    range->known = true;
    round->ranges.n_known++;
    if (start < end) order(&round->ranges, rank);
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        if (leave_out(round, &round->chunks[c], rank)) round->missing--;
        move_prefix(&round->chunks[c]);
    }
}

/* Lets the chunk wait for the rank's contribution again. */
static void wait_again(pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    if (!round->together && pd_chunk_is_complete(round, chunk)) round->missing++;
    chunk->contributions[rank].state = PD_CONTRIBUTION_EMPTY;
    chunk->came--;
    if (chunk->prefix > rank) chunk->prefix = rank;
}

void pd_round_unset_range(pd_round *round, uint32_t rank)
{
    pd_rank_range *range = &round->ranges.at[rank];

    assert(range->known);
    if (range->start < range->end) unorder(&round->ranges, rank);
    round->ranges.n_known--;
    *range = (pd_rank_range){ .by_start = range->by_start, .by_end = range->by_end, .swept = range->swept };
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].contributions[rank].state == PD_CONTRIBUTION_OUTSIDE)
            wait_again(round, &round->chunks[c], rank);
}

/* Returns whether a contribution belongs to the next step: the rank does not count in the round that closes. */
static bool stays(const pd_round *round, uint32_t rank)
{
    return round->fixed && !pd_round_counts(round, rank) && !PD_MUTANT(kept_slot_reset);
}

static void clear_all(pd_round *round, pd_chunk *chunk)
{
    chunk->came = chunk->prefix = chunk->summed = 0;
    chunk->collected = 0;
    chunk->list = PD_CHUNK_NOWHERE;
    memset(chunk->contributions, 0, pd_round_ranks(round) * sizeof *chunk->contributions);
    if (round->ranges.at == NULL) return;
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) leave_out(round, chunk, rank);
    move_prefix(chunk);
}

/* Clears a chunk of a round whose ranks were fixed: contributions of other ranks stay. */
static void clear_counted(pd_round *round, pd_chunk *chunk)
{
    chunk->came = chunk->prefix = chunk->summed = 0;
    chunk->collected = 0;
    chunk->list = PD_CHUNK_NOWHERE;
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        if (!stays(round, rank)) chunk->contributions[rank] = (pd_contribution){ 0 };
        chunk->came += chunk->contributions[rank].state != PD_CONTRIBUTION_EMPTY;
        if (round->ranges.at != NULL && chunk->contributions[rank].state == PD_CONTRIBUTION_EMPTY)
            leave_out(round, chunk, rank);
    }
    move_prefix(chunk);
}

static void empty(pd_round *round)
{
    round->missing = round->unsummed = round->n_chunks;
    round->open = round->fixed = round->weightless = false;
    round->set = NULL;
    round->damped = NULL;
    round->finite = true;
    round->largest = 0;
    round->started_ns = round->last_ns = 0;
}

void pd_round_reset(pd_round *round)
{
    if (round->together) {
        for (uint32_t c = 0; c < round->n_chunks; c++) clear_counted(round, &round->chunks[c]);
    } else {
        for (uint32_t c = 0; c < round->n_chunks; c++) clear_all(round, &round->chunks[c]);
    }
    empty(round);
}

bool pd_round_has_any(const pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
            pd_contribution_state state = pd_chunk_state(&round->chunks[c], rank);
            if (state != PD_CONTRIBUTION_EMPTY && state != PD_CONTRIBUTION_OUTSIDE) return true;
        }
    return false;
}

void pd_round_init(pd_round *round, const pd_round_layout *l)
{
    int64_t n = (int64_t)pd_count_chunks(l->elements, (uint64_t)l->chunk_elements);

    *round = (pd_round){ .expected = l->expected,
                         .together = l->together,
                         .chunks = l->chunks,
                         .ranges = { .at = l->ranges },
                         .elements = l->elements,
                         .chunk_elements = l->chunk_elements,
                         .n_chunks = (uint32_t)n };
    for (int64_t c = 0; c < n; c++) {
        int64_t first = c * l->chunk_elements, left = l->elements - first;
        l->chunks[c] = (pd_chunk){ .param = l->param,
                                   .contributions = l->contributions + c * l->expected->ranks,
                                   .first = first,
                                   .n = left < l->chunk_elements ? left : l->chunk_elements };
    }
    empty(round);
}

pd_contribution *pd_round_first_contribution(pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.first < span.end ? &round->chunks[span.first].contributions[rank] : NULL;
}

bool pd_round_is_absent(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.first < span.end && pd_chunk_state(&round->chunks[span.first], rank) == PD_CONTRIBUTION_ABSENT;
}

bool pd_round_has_given(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    for (uint32_t c = span.first; c < span.end; c++) {
        pd_contribution_state state = pd_chunk_state(&round->chunks[c], rank);
        if (state == PD_CONTRIBUTION_HELD || state == PD_CONTRIBUTION_SPILLED || state == PD_CONTRIBUTION_SUMMED)
            return true;
    }
    return false;
}

bool pd_round_is_silent(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    for (uint32_t c = span.first; c < span.end; c++)
        if (pd_chunk_state(&round->chunks[c], rank) != PD_CONTRIBUTION_EMPTY) return false;
    return span.first < span.end;
}

bool pd_round_was_refused(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].contributions[rank].refused) return true;
    return false;
}

bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_contribution given)
{
    assert(chunk->contributions[rank].state == PD_CONTRIBUTION_EMPTY);
    chunk->contributions[rank] = given;
    chunk->came++;
    move_prefix(chunk);
    if (round->together || !pd_chunk_is_complete(round, chunk)) return false;
    round->missing--;
    return true;
}

void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    assert(round->fixed ? !pd_round_counts(round, rank) : chunk->summed <= rank);
    chunk->contributions[rank] = (pd_contribution){ .state = PD_CONTRIBUTION_EMPTY };
    /* What is known of the next step is counted anew when the round is reset. */
    if (!round->fixed) wait_again(round, chunk, rank);
}

bool pd_round_misses(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    if (round->fixed || !pd_rank_set_has(round->expected, rank)) return false;
    for (uint32_t c = span.first; c < span.end; c++)
        if (pd_chunk_state(&round->chunks[c], rank) == PD_CONTRIBUTION_EMPTY) return true;
    return false;
}

/* Largest number of contributions that are read to find missing ranks, which takes some milliseconds. */
enum { MOST_LOOKS = 1 << 20 };

char *pd_round_missing(const pd_round *round, char *text, size_t size)
{
    size_t used = 0;
    uint64_t looks = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; round->open && rank < pd_round_ranks(round); rank++) {
        looks += round->n_chunks;
        if (looks <= MOST_LOOKS && !pd_round_misses(round, rank)) continue;
        if (looks > MOST_LOOKS || used + 16 > size) {
            snprintf(text + used, size - used, ",...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", rank);
    }
    return text;
}
