#include "round.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- what belongs to whom ---- */

pd_range pd_round_range(const pd_round *round, uint32_t rank)
{
    return round->ranges != NULL && round->ranges[rank].known ? round->ranges[rank] : (pd_range){ .start = 0, .end = round->elements };
}

pd_run pd_round_run(const pd_round *round, const pd_chunk *chunk, uint32_t rank)
{
    pd_range range = pd_round_range(round, rank);
    int64_t first = range.start > chunk->first ? range.start : chunk->first;
    int64_t end = range.end < chunk->first + chunk->n ? range.end : chunk->first + chunk->n;

    return (pd_run){ first, end > first ? end - first : 0 };
}

/* Chunks [first, end) that the rank's range touches. */
typedef struct pd_span { uint32_t first, end; } pd_span;

static pd_span span_of(const pd_round *round, uint32_t rank)
{
    pd_range range = pd_round_range(round, rank);

    if (range.start == range.end) return (pd_span){ 0, 0 };
    return (pd_span){ (uint32_t)(range.start / round->chunk_elements), (uint32_t)((range.end - 1) / round->chunk_elements) + 1 };
}

uint32_t pd_round_count_chunks(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.end - span.first;
}

uint32_t pd_round_count_ranks(const pd_round *round, const pd_chunk *chunk)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < round->world; rank++)
        n += (round->ranges == NULL || round->ranges[rank].known) && chunk->slots[rank].state != PD_SLOT_OUTSIDE;
    return n;
}

/* ---- ranges in their order ---- */

static int64_t nth_start(const pd_round *round, uint32_t i) { return round->ranges[round->ranges[i].by_start].start; }
static int64_t nth_end(const pd_round *round, uint32_t i)   { return round->ranges[round->ranges[i].by_end].end; }

/* How many of the n numbers, in ascending order, are at most `most`. */
static uint32_t count_upto(const pd_round *round, int64_t (*nth)(const pd_round *, uint32_t), uint32_t n, int64_t most)
{
    uint32_t low = 0, high = n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (nth(round, middle) <= most) low = middle + 1;
        else high = middle;
    }
    return low;
}

static uint32_t starts_upto(const pd_round *round, int64_t most) { return count_upto(round, nth_start, round->n_ranges, most); }
static uint32_t ends_upto(const pd_round *round, int64_t most)   { return count_upto(round, nth_end, round->n_ranges, most); }

static void order_range(pd_round *round, uint32_t rank)
{
    pd_range *ranges = round->ranges;
    uint32_t start = starts_upto(round, ranges[rank].start), end = ends_upto(round, ranges[rank].end);

    for (uint32_t i = round->n_ranges; i > start; i--) ranges[i].by_start = ranges[i - 1].by_start;
    for (uint32_t i = round->n_ranges; i > end; i--) ranges[i].by_end = ranges[i - 1].by_end;
    ranges[start].by_start = ranges[end].by_end = rank;
    round->n_ranges++;
}

static void unorder_range(pd_round *round, uint32_t rank)
{
    pd_range *ranges = round->ranges;
    uint32_t start = 0, end = 0;

    while (ranges[start].by_start != rank) start++;
    while (ranges[end].by_end != rank) end++;
    round->n_ranges--;
    for (uint32_t i = start; i < round->n_ranges; i++) ranges[i].by_start = ranges[i + 1].by_start;
    for (uint32_t i = end; i < round->n_ranges; i++) ranges[i].by_end = ranges[i + 1].by_end;
}

pd_run pd_round_stretch(const pd_round *round, int64_t first, int64_t end)
{
    uint32_t start, finish;

    if (round->ranges == NULL) return (pd_run){ first, end - first };
    start = starts_upto(round, first);
    finish = ends_upto(round, first);
    if (start < round->n_ranges && nth_start(round, start) < end) end = nth_start(round, start);
    if (finish < round->n_ranges && nth_end(round, finish) < end) end = nth_end(round, finish);
    return (pd_run){ first, end - first };
}

uint32_t pd_round_count_covering(const pd_round *round, pd_run stretch)
{
    if (round->ranges == NULL) return round->world;
    return round->world - round->n_known + starts_upto(round, stretch.first) - ends_upto(round, stretch.first);
}

bool pd_round_covers(const pd_round *round, uint32_t rank, pd_run stretch)
{
    pd_range range = pd_round_range(round, rank);

    return range.start <= stretch.first && range.end >= stretch.first + stretch.n;
}

static void move_prefix(pd_chunk *chunk)
{
    while (chunk->prefix < chunk->came && chunk->slots[chunk->prefix].state != PD_SLOT_EMPTY) chunk->prefix++;
}

/* True: it is, and nobody else is missing. */
static bool leave_out(pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    if (pd_round_run(round, chunk, rank).n > 0) return false;
    chunk->slots[rank].state = PD_SLOT_OUTSIDE;
    return ++chunk->came == round->world;
}

void pd_round_set_range(pd_round *round, uint32_t rank, int64_t start, int64_t end)
{
    assert(!round->ranges[rank].known && start <= end && end <= round->elements);
    round->ranges[rank].start = start;
    round->ranges[rank].end = end;
    round->ranges[rank].known = true;
    round->n_known++;
    if (start < end) order_range(round, rank);
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        if (leave_out(round, &round->chunks[c], rank)) round->missing--;
        move_prefix(&round->chunks[c]);
    }
}

void pd_round_unset_range(pd_round *round, uint32_t rank)
{
    pd_range *range = &round->ranges[rank];

    assert(range->known);
    if (range->start < range->end) unorder_range(round, rank);
    round->n_known--;
    range->start = range->end = 0;
    range->known = false;
    range->initialiser = 0;
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        pd_chunk *chunk = &round->chunks[c];
        if (chunk->slots[rank].state != PD_SLOT_OUTSIDE) continue;
        chunk->slots[rank].state = PD_SLOT_EMPTY;
        if (chunk->came-- == round->world) round->missing++;
        if (chunk->prefix > rank) chunk->prefix = rank;
    }
}

bool pd_round_gap(const pd_round *round, bool given, pd_range *gap)
{
    *gap = (pd_range){ .start = 0, .end = round->elements };
    for (uint32_t i = 0; i < round->n_ranges; i++) {
        uint32_t rank = round->ranges[i].by_start;
        const pd_range *range = &round->ranges[rank];
        if (given && pd_round_is_absent(round, rank)) continue;
        if (range->start > gap->start) {
            gap->end = range->start;
            return true;
        }
        if (range->end > gap->start) gap->start = range->end;
    }
    return gap->start < round->elements;
}

/* ---- a sweep ---- */

pd_sweep pd_sweep_begin(pd_round *round, int64_t first, int64_t end)
{
    pd_sweep sweep = { .round = round, .run = { first, 0 }, .end = end };

    if (round->ranges == NULL) {
        sweep.n = round->world;
        return sweep;
    }
    sweep.starts = starts_upto(round, first);
    sweep.ends = ends_upto(round, first);
    for (uint32_t rank = 0; rank < round->world; rank++) {
        pd_range range = pd_round_range(round, rank);
        if (range.start <= first && range.end > first) round->ranges[sweep.n++].swept = rank;
    }
    return sweep;
}

/* Where the rank stands among those of the stretch, or would stand. */
static uint32_t place_of(const pd_sweep *sweep, uint32_t rank)
{
    uint32_t low = 0, high = sweep->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pd_sweep_rank(sweep, middle) < rank) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void let_in(pd_sweep *sweep, uint32_t rank)
{
    pd_range *ranges = sweep->round->ranges;
    uint32_t place = place_of(sweep, rank);

    for (uint32_t i = sweep->n++; i > place; i--) ranges[i].swept = ranges[i - 1].swept;
    ranges[place].swept = rank;
}

static void let_out(pd_sweep *sweep, uint32_t rank)
{
    pd_range *ranges = sweep->round->ranges;

    sweep->n--;
    for (uint32_t i = place_of(sweep, rank); i < sweep->n; i++) ranges[i].swept = ranges[i + 1].swept;
}

bool pd_sweep_next(pd_sweep *sweep)
{
    const pd_round *round = sweep->round;
    int64_t at = sweep->run.first + sweep->run.n;

    if (at >= sweep->end) return false;
    for (; sweep->ends < round->n_ranges && nth_end(round, sweep->ends) <= at; sweep->ends++) let_out(sweep, round->ranges[sweep->ends].by_end);
    for (; sweep->starts < round->n_ranges && nth_start(round, sweep->starts) <= at; sweep->starts++) let_in(sweep, round->ranges[sweep->starts].by_start);
    sweep->run = pd_round_stretch(round, at, sweep->end);
    return true;
}

/* ---- a round ---- */

static void clear_chunk(pd_round *round, pd_chunk *chunk)
{
    chunk->came = chunk->prefix = chunk->summed = 0;
    chunk->gathered = 0;
    chunk->list = PD_CHUNK_NOWHERE;
    memset(chunk->slots, 0, round->world * sizeof *chunk->slots);
    if (round->ranges == NULL) return;
    for (uint32_t rank = 0; rank < round->world; rank++) leave_out(round, chunk, rank);
    move_prefix(chunk);
}

static void empty(pd_round *round)
{
    round->missing = round->unsummed = round->n_chunks;
    round->open = round->weightless = false;
    round->finite = true;
    round->started_ns = 0;
}

void pd_round_reset(pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++) clear_chunk(round, &round->chunks[c]);
    empty(round);
}

void pd_round_init(pd_round *round, struct pd_param *param, int64_t elements, int64_t chunk_elements, uint32_t world, pd_chunk *chunks,
                   pd_slot *slots, pd_range *ranges)
{
    int64_t n = (int64_t)pd_count_chunks(elements, (uint64_t)chunk_elements);

    *round = (pd_round){ .chunks = chunks, .ranges = ranges, .elements = elements, .chunk_elements = chunk_elements, .n_chunks = (uint32_t)n, .world = world };
    for (int64_t c = 0; c < n; c++) {
        int64_t first = c * chunk_elements, left = elements - first;
        chunks[c] = (pd_chunk){ .param = param, .slots = slots + c * world, .first = first,
                                .n = left < chunk_elements ? left : chunk_elements };
    }
    empty(round);
}

pd_slot *pd_round_first_slot(pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.first < span.end ? &round->chunks[span.first].slots[rank] : NULL;
}

bool pd_round_is_absent(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    return span.first < span.end && pd_chunk_heard(&round->chunks[span.first], rank) == PD_SLOT_ABSENT;
}

bool pd_round_has_given(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    for (uint32_t c = span.first; c < span.end; c++) {
        pd_slot_state heard = pd_chunk_heard(&round->chunks[c], rank);
        if (heard == PD_SLOT_HELD || heard == PD_SLOT_SPILLED || heard == PD_SLOT_SUMMED) return true;
    }
    return false;
}

bool pd_round_is_silent(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    for (uint32_t c = span.first; c < span.end; c++)
        if (pd_chunk_heard(&round->chunks[c], rank) != PD_SLOT_EMPTY) return false;
    return span.first < span.end;
}

bool pd_round_was_refused(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].slots[rank].refused) return true;
    return false;
}

pd_given pd_round_given(const pd_round *round)
{
    uint32_t absent = 0, given = 0;
    pd_range gap;

    for (uint32_t rank = 0; rank < round->world; rank++) {
        if (pd_round_is_absent(round, rank)) absent++;
        else given += pd_round_count_chunks(round, rank) > 0;
    }
    if (given == 0) return PD_GIVEN_NOTHING;
    return absent > 0 && round->ranges != NULL && pd_round_gap(round, true, &gap) ? PD_GIVEN_PART : PD_GIVEN_ALL;
}

bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot)
{
    assert(chunk->slots[rank].state == PD_SLOT_EMPTY);
    chunk->slots[rank] = slot;
    chunk->came++;
    move_prefix(chunk);
    if (chunk->came < round->world) return false;
    round->missing--;
    return true;
}

void pd_round_take_back(pd_round *round, pd_chunk *chunk, uint32_t rank)
{
    assert(chunk->slots[rank].state == PD_SLOT_HELD && chunk->summed <= rank);
    chunk->slots[rank] = (pd_slot){ .state = PD_SLOT_EMPTY };
    if (chunk->came-- == round->world) round->missing++;
    if (chunk->prefix > rank) chunk->prefix = rank;
}

bool pd_round_misses(const pd_round *round, uint32_t rank)
{
    pd_span span = span_of(round, rank);

    for (uint32_t c = span.first; c < span.end; c++)
        if (pd_chunk_heard(&round->chunks[c], rank) == PD_SLOT_EMPTY) return true;
    return false;
}

char *pd_round_missing(const pd_round *round, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; round->open && rank < round->world; rank++) {
        if (!pd_round_misses(round, rank)) continue;
        if (used + 16 > size) {
            snprintf(text + used, size - used, ",...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", rank);
    }
    return text;
}
