/* round.c - stores what each rank has contributed to each chunk of a round, and the ranges of the ranks. */
#include "round.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void pd_membership_all(pd_membership *members, uint32_t ranks)
{
    assert(ranks <= PD_MAX_WORLD);
    *members = (pd_membership){ .ranks = ranks, .expected = ranks };
    for (uint32_t rank = 0; rank < ranks; rank++) members->set[rank / 64] |= (uint64_t)1 << rank % 64;
}

static pd_admit admit(const pd_round *round, uint32_t rank, uint64_t closed, uint64_t step)
{
    (void)round, (void)rank;
    if (step <= closed) return PD_ADMIT_DUPLICATE;
    return step == closed + 1 ? PD_ADMIT_NEW : PD_ADMIT_EARLY;
}

static bool chunk_is_complete(const pd_round *round, const pd_chunk *chunk)
{
    return chunk->came == round->members->expected;
}

static bool round_is_complete(const pd_round *round)
{
    return round->missing == 0;
}

static pd_overdue overdue(const pd_round *round)
{
    (void)round;
    return PD_OVERDUE_REPORT;
}

const pd_policy pd_policy_sync = { "sync", admit, chunk_is_complete, round_is_complete, overdue };

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
    return pd_chunk_is_complete(round, chunk);
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
    if (pd_chunk_is_complete(round, chunk)) round->missing++;
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

static void clear_chunk(pd_round *round, pd_chunk *chunk)
{
    chunk->came = chunk->prefix = chunk->summed = 0;
    chunk->collected = 0;
    chunk->list = PD_CHUNK_NOWHERE;
    memset(chunk->contributions, 0, pd_round_ranks(round) * sizeof *chunk->contributions);
    if (round->ranges.at == NULL) return;
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) leave_out(round, chunk, rank);
    move_prefix(chunk);
}

static void empty(pd_round *round)
{
    round->missing = round->unsummed = round->n_chunks;
    round->open = round->closing = round->weightless = false;
    round->finite = true;
    round->largest = 0;
    round->started_ns = round->last_ns = 0;
}

void pd_round_reset(pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++) clear_chunk(round, &round->chunks[c]);
    empty(round);
}

void pd_round_init(pd_round *round, const pd_round_layout *l)
{
    int64_t n = (int64_t)pd_count_chunks(l->elements, (uint64_t)l->chunk_elements);

    *round = (pd_round){ .policy = l->policy,
                         .members = l->members,
                         .chunks = l->chunks,
                         .ranges = { .at = l->ranges },
                         .elements = l->elements,
                         .chunk_elements = l->chunk_elements,
                         .n_chunks = (uint32_t)n };
    for (int64_t c = 0; c < n; c++) {
        int64_t first = c * l->chunk_elements, left = l->elements - first;
        l->chunks[c] = (pd_chunk){ .param = l->param,
                                   .contributions = l->contributions + c * l->members->ranks,
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
    if (!pd_chunk_is_complete(round, chunk)) return false;
    round->missing--;
    return true;
}

void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    assert(chunk->contributions[rank].state == PD_CONTRIBUTION_HELD && chunk->summed <= rank);
    chunk->contributions[rank] = (pd_contribution){ .state = PD_CONTRIBUTION_EMPTY };
    wait_again(round, chunk, rank);
}

static bool everybody_came(const pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].came < round->members->expected) return false;
    return true;
}

int pd_round_counted(const pd_round *round, pd_counted **out)
{
    uint32_t ranks = pd_round_ranks(round);

    *out = NULL;
    if (everybody_came(round)) return PD_OK;
    if ((*out = pd_counted_new(ranks)) == NULL) return PD_NO_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (!pd_round_misses(round, rank)) pd_counted_add(*out, rank);
    return PD_OK;
}

bool pd_round_misses(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    if ((round->members->set[rank / 64] >> rank % 64 & 1) == 0) return false; /* the rank is not expected */
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
