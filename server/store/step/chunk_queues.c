/* chunk_queues.c - moves chunks between the queues `waiting` and `ready`. */
#include "chunk_queues.h"

#include <utlist.h>

/* Returns whether the aggregate of no chunk can be computed before contributions to all chunks have come. A rank's
 * initial weights of a parameter can be taken back until the rank has given all of them (job/initial_weights.h). */
static bool needs_round(const pd_param *param)
{
    return param->current == NULL || pd_is_merged(param->how);
}

/* Returns whether the aggregate of the chunk is computed, or its computation is queued. */
static bool is_settled(const pd_chunk *chunk)
{
    return chunk->list == PD_CHUNK_READY || pd_chunk_ends_at(&chunk->param->round, chunk->summed);
}

static bool is_possible(const pd_chunk *chunk)
{
    const pd_round *round = &chunk->param->round;

    return needs_round(chunk->param) ? pd_round_is_complete(round) : pd_chunk_is_complete(round, chunk);
}

static bool holds_frames(const pd_chunk *chunk)
{
    for (uint32_t rank = 0; rank < pd_round_ranks(&chunk->param->round); rank++)
        if (pd_chunk_state(chunk, rank) == PD_CONTRIBUTION_HELD) return true;
    return false;
}

void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_WAITING) DL_DELETE(steps->chunks.waiting, chunk);
    if (chunk->list == PD_CHUNK_READY) DL_DELETE(steps->chunks.ready, chunk);
    chunk->list = PD_CHUNK_NOWHERE;
}

static void list_waiting(pd_steps *steps, pd_chunk *chunk)
{
    DL_APPEND(steps->chunks.waiting, chunk);
    chunk->list = PD_CHUNK_WAITING;
}

static void list_ready(pd_steps *steps, pd_chunk *chunk)
{
    pd_chunk_unlist(steps, chunk);
    DL_APPEND(steps->chunks.ready, chunk);
    chunk->list = PD_CHUNK_READY;
}

/* Queues the parameter whose aggregate merges whole vectors: its first chunk stands for all. */
static bool look_at_merged(pd_steps *steps, pd_param *param)
{
    pd_round *round = &param->round;

    if (is_settled(&round->chunks[0])) return false;
    if (!pd_round_is_complete(round)) return true;
    for (uint32_t c = 0; c < round->n_chunks; c++) pd_chunk_unlist(steps, &round->chunks[c]);
    list_ready(steps, &round->chunks[0]);
    return true;
}

bool pd_chunks_look(pd_steps *steps, pd_param *param)
{
    bool changes = false;

    if (pd_is_merged(pd_param_how(param))) return look_at_merged(steps, param);
    for (uint32_t c = 0; c < param->round.n_chunks; c++) {
        pd_chunk *chunk = &param->round.chunks[c];
        if (is_settled(chunk)) continue;
        changes = true;
        if (is_possible(chunk)) list_ready(steps, chunk);
    }
    return changes;
}

void pd_chunk_came(pd_steps *steps, pd_chunk *chunk, bool held)
{
    if (!is_possible(chunk)) {
        if (held && chunk->list == PD_CHUNK_NOWHERE) list_waiting(steps, chunk);
    } else if (needs_round(chunk->param)) {
        pd_chunks_look(steps, chunk->param);
    } else {
        list_ready(steps, chunk);
    }
}

void pd_chunks_wait(pd_steps *steps, pd_param *param)
{
    for (uint32_t c = 0; c < param->round.n_chunks; c++)
        if (holds_frames(&param->round.chunks[c])) list_waiting(steps, &param->round.chunks[c]);
    steps->chunks.look = true;
}

void pd_chunk_let_go(pd_steps *steps, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_WAITING && !holds_frames(chunk)) pd_chunk_unlist(steps, chunk);
}

bool pd_chunks_must_relieve(const pd_steps *steps)
{
    return steps->chunks.look && steps->chunks.waiting != NULL && pd_steps_are_over_quota(steps);
}

bool pd_chunks_have_work(const pd_steps *steps)
{
    return steps->chunks.ready != NULL || pd_chunks_must_relieve(steps);
}
