/* chunk_queue.c - the queues of chunks (sections of parameters) that can be summed, and the sums of one batch of
 * work. */
#include "chunk_queue.h"

#include "frames.h"
#include "step_group.h"
#include "sums.h"

#include <utlist.h>

#define PASS_NS 250.0 /* estimated ns to plan the sum of a chunk and to file it; all on one thread */

/* ---- queues ---- */

void pd_chunk_list_to_sum(pd_steps *steps, pd_chunk *chunk, bool complete)
{
    if (complete) {
        if (chunk->list == PD_CHUNK_PARTIAL) DL_DELETE(steps->chunks.partial, chunk);
        DL_APPEND(steps->chunks.complete, chunk);
        chunk->list = PD_CHUNK_COMPLETE;
    } else if (chunk->list == PD_CHUNK_NOWHERE && chunk->prefix > chunk->summed) {
        DL_APPEND(steps->chunks.partial, chunk);
        chunk->list = PD_CHUNK_PARTIAL;
    }
}

void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_PARTIAL) DL_DELETE(steps->chunks.partial, chunk);
    if (chunk->list == PD_CHUNK_COMPLETE) DL_DELETE(steps->chunks.complete, chunk);
    chunk->list = PD_CHUNK_NOWHERE;
}

bool pd_chunks_have_work(const pd_steps *steps)
{
    return steps->chunks.complete != NULL ||
           (steps->chunks.look && steps->chunks.partial != NULL && pd_steps_are_over_quota(steps));
}

/* ---- sums ---- */

/* Returns how many ranks, from rank 0 on, must be in the sum of a chunk now, though other contributions are missing: up
 * to the highest rank that is over quota and can be summed. Returns chunk->summed if
 * there is no such rank. */
static uint32_t exceeded_prefix(const pd_steps *steps, const pd_chunk *chunk)
{
    for (uint32_t rank = chunk->prefix; rank > chunk->summed; rank--)
        if (chunk->contributions[rank - 1].state == PD_CONTRIBUTION_HELD && pd_rank_is_over_quota(steps, rank - 1))
            return rank;
    return chunk->summed;
}

static int plan(pd_steps *steps, pd_chunk *chunk, uint32_t upto)
{
    pd_param *param = chunk->param;

    return pd_sums_plan(steps->batch.sums, &param->round, chunk, upto, pd_param_how(param), &param->buffers.accumulator,
                        param->buffers.pool[PD_F32]);
}

/* Returns the estimated time to plan the sums and to file them, while all threads but one wait. */
static double noting_ns(const pd_steps *steps)
{
    return PASS_NS * (double)steps->batch.sums->n_passes * steps->config->threads;
}

static bool is_full(const pd_steps *steps, double budget_ns)
{
    return pd_sums_are_full(steps->batch.sums, budget_ns - noting_ns(steps));
}

/* Plans sums for about budget_ns nanoseconds: first those of complete chunks, then those of incomplete chunks with
 * frames of ranks that are over quota. Returns the parameter for which memory was short; NULL: none. */
static pd_param *plan_sums(pd_steps *steps, double budget_ns)
{
    pd_chunk *chunk;

    DL_FOREACH(steps->chunks.complete, chunk)
    {
        if (is_full(steps, budget_ns)) return NULL;
        if (plan(steps, chunk, steps->members.ranks) != PD_OK) return chunk->param;
    }
    if (!steps->chunks.look || steps->chunks.partial == NULL || !pd_steps_are_over_quota(steps)) return NULL;
    DL_FOREACH(steps->chunks.partial, chunk)
    {
        uint32_t upto = exceeded_prefix(steps, chunk);
        if (is_full(steps, budget_ns)) return NULL;
        if (upto > chunk->summed && plan(steps, chunk, upto) != PD_OK) return chunk->param;
    }
    steps->chunks.look = false;
    return NULL;
}

static void let_go_of_summed(pd_steps *steps, pd_chunk *chunk, uint32_t from, uint32_t upto)
{
    for (uint32_t rank = from; rank < upto; rank++) {
        pd_contribution *slot = &chunk->contributions[rank];
        if (slot->frame != NULL) pd_frame_let_go(steps, slot->frame);
        slot->frame = NULL;
    }
}

static void note_pass(pd_steps *steps, const pd_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    uint32_t from = chunk->summed;

    pd_sums_note(steps->batch.sums, pass, pd_param_how(chunk->param));
    let_go_of_summed(steps, chunk, from, pass->upto);
    if (pd_chunk_ends_at(pass->round, pass->upto)) {
        pd_chunk_unlist(steps, chunk);
        if (pass->round->unsummed == 0) pd_param_collected(steps, chunk->param);
    } else if (chunk->summed == chunk->prefix) {
        pd_chunk_unlist(steps, chunk);
    }
}

double pd_chunks_sum(pd_steps *steps, pd_param **starved)
{
    pd_sums *sums = steps->batch.sums;
    int threads = steps->config->threads;

    pd_sums_clear(sums);
    *starved = plan_sums(steps, steps->config->batch_ns * threads);
    pd_sums_run(sums, threads);
    for (size_t i = 0; i < sums->n_passes; i++) note_pass(steps, &sums->passes[i]);
    return steps->batch.sums->cost_ns + noting_ns(steps);
}
