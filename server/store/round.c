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

pd_run pd_round_stretch(const pd_round *round, int64_t first, int64_t end)
{
    for (uint32_t rank = 0; round->ranges != NULL && rank < round->world; rank++) {
        pd_range range = pd_round_range(round, rank);
        if (range.start == range.end) continue;
        if (range.start > first && range.start < end) end = range.start;
        if (range.end > first && range.end < end) end = range.end;
    }
    return (pd_run){ first, end - first };
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
    round->ranges[rank] = (pd_range){ .start = start, .end = end, .known = true };
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        if (leave_out(round, &round->chunks[c], rank)) round->missing--;
        move_prefix(&round->chunks[c]);
    }
}

void pd_round_unset_range(pd_round *round, uint32_t rank)
{
    assert(round->ranges[rank].known);
    round->ranges[rank] = (pd_range){ .known = false };
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        pd_chunk *chunk = &round->chunks[c];
        if (chunk->slots[rank].state != PD_SLOT_OUTSIDE) continue;
        chunk->slots[rank].state = PD_SLOT_EMPTY;
        if (chunk->came-- == round->world) round->missing++;
        if (chunk->prefix > rank) chunk->prefix = rank;
    }
}

/* The rank's range counts: it is known, has elements, and the rank has given what it has. */
static bool counts(const pd_round *round, uint32_t rank, bool given)
{
    const pd_range *range = &round->ranges[rank];

    return range->known && range->start < range->end && !(given && pd_round_is_absent(round, rank));
}

/* Ranks in the order of their ranges, as they usually are, are passed over once. */
bool pd_round_gap(const pd_round *round, bool given, pd_range *gap)
{
    bool moved = true;

    *gap = (pd_range){ .start = 0, .end = round->elements };
    while (moved && gap->start < round->elements) {
        moved = false;
        for (uint32_t rank = 0; rank < round->world; rank++) {
            const pd_range *range = &round->ranges[rank];
            if (range->start > gap->start || range->end <= gap->start || !counts(round, rank, given)) continue;
            gap->start = range->end;
            moved = true;
        }
    }
    for (uint32_t rank = 0; rank < round->world; rank++)
        if (round->ranges[rank].start > gap->start && round->ranges[rank].start < gap->end && counts(round, rank, given))
            gap->end = round->ranges[rank].start;
    return gap->start < round->elements;
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

void pd_round_reset(pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++) clear_chunk(round, &round->chunks[c]);
    round->missing = round->unsummed = round->n_chunks;
    round->open = round->weightless = false;
    round->finite = true;
    round->started_ns = 0;
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
    pd_round_reset(round);
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
