#include "round.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void clear_chunk(pd_chunk *chunk, uint32_t world)
{
    chunk->came = chunk->prefix = chunk->summed = chunk->given = 0;
    chunk->weight = 0;
    chunk->list = PD_CHUNK_NOWHERE;
    memset(chunk->slots, 0, world * sizeof *chunk->slots);
}

void pd_round_reset(pd_round *round)
{
    for (uint32_t c = 0; c < round->n_chunks; c++) clear_chunk(&round->chunks[c], round->world);
    round->missing = round->unsummed = round->n_chunks;
    round->open = round->weightless = false;
    round->finite = true;
    round->started_ns = 0;
}

void pd_round_init(pd_round *round, struct pd_param *param, int64_t elements, int64_t chunk_elements, uint32_t world, pd_chunk *chunks,
                   pd_slot *slots)
{
    int64_t n = (elements + chunk_elements - 1) / chunk_elements;

    round->chunks = chunks;
    round->n_chunks = (uint32_t)n;
    round->world = world;
    for (int64_t c = 0; c < n; c++) {
        int64_t first = c * chunk_elements, left = elements - first;
        chunks[c] = (pd_chunk){ .param = param, .slots = slots + c * world, .first = first,
                                .n = left < chunk_elements ? left : chunk_elements };
    }
    pd_round_reset(round);
}

bool pd_round_is_absent(const pd_round *round, uint32_t rank)
{
    return pd_chunk_heard(&round->chunks[0], rank) == PD_SLOT_ABSENT;
}

bool pd_round_has_given(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        pd_slot_state heard = pd_chunk_heard(&round->chunks[c], rank);
        if (heard == PD_SLOT_HELD || heard == PD_SLOT_SUMMED) return true;
    }
    return false;
}

bool pd_round_is_silent(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (pd_chunk_heard(&round->chunks[c], rank) != PD_SLOT_EMPTY) return false;
    return true;
}

bool pd_round_was_refused(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].slots[rank].refused) return true;
    return false;
}

bool pd_round_any_given(const pd_round *round)
{
    for (uint32_t rank = 0; rank < round->world; rank++)
        if (!pd_round_is_absent(round, rank)) return true;
    return false;
}

bool pd_round_add(pd_round *round, pd_chunk *chunk, uint32_t rank, pd_slot slot)
{
    assert(chunk->slots[rank].state == PD_SLOT_EMPTY);
    chunk->slots[rank] = slot;
    chunk->came++;
    while (chunk->prefix < chunk->came && chunk->slots[chunk->prefix].state != PD_SLOT_EMPTY) chunk->prefix++;
    if (chunk->came < round->world) return false;
    round->missing--;
    return true;
}

bool pd_round_misses(const pd_round *round, uint32_t rank)
{
    for (uint32_t c = 0; c < round->n_chunks; c++)
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
