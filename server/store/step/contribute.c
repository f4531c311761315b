/* contribute.c - files the contributions of ranks, and queues the chunks that they make complete. */
#include "contribute.h"

#include "sums.h"
#include "collect.h"
#include "fragment_ranks.h"
#include "round_scalars.h"
#include "step_group.h"

#include <utlist.h>

/* Queues a chunk of initial weights, if the job averages these over the ranks.
 *
 * A rank's initial weights of a parameter can be taken back until the rank has given all of them
 * (job/initial_weights.h). So no chunk is queued as complete before the last contribution to the parameter has come.
 * Until then only contributions of ranks over quota, and of the ranks below them, are summed. */
static void list_initial(pd_steps *steps, pd_param *param, pd_chunk *chunk)
{
    pd_round *round = &param->round;

    if (!pd_round_is_complete(round)) {
        pd_chunk_list_to_sum(steps, chunk, false);
        return;
    }
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (!pd_chunk_ends_at(round, round->chunks[c].summed)) pd_chunk_list_to_sum(steps, &round->chunks[c], true);
}

/* Removes the parameter from steps->queue.waiting if all contributions to its round have
 * come, and it need not wait for other parameters either. */
static void look_at_waiting(pd_steps *steps, pd_param *param)
{
    if (pd_round_is_complete(&param->round) && !pd_param_may_be_held(steps, param))
        DL_DELETE2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
}

static void open_round(pd_steps *steps, pd_param *param, uint64_t now_ns)
{
    if (param->round.open) return;
    param->round.open = true;
    param->round.started_ns = now_ns;
    steps->queue.n_open++;
    DL_APPEND2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
}

void pd_contribute(pd_steps *steps, pd_chunk *chunk, uint32_t rank, pd_contribution given, uint64_t step,
                   uint64_t now_ns)
{
    pd_param *param = chunk->param;
    pd_round *round = &param->round;
    bool complete;

    open_round(steps, param, now_ns);
    round->last_ns = now_ns;
    if (param->current != NULL) pd_step_times_arrived(&steps->times, param->saved.step + 1, rank, now_ns);
    complete = pd_round_add(round, chunk, rank, given);
    if (round->together) {
        if (!round->fixed && pd_is_collected(param->how)) pd_collect_file(steps, chunk);
        pd_fragment_came(steps, param, rank, step, now_ns);
        return;
    }
    if (pd_is_collected(pd_param_how(param)))
        pd_collect_file(steps, chunk);
    else if (param->current == NULL)
        list_initial(steps, param, chunk);
    else
        pd_chunk_list_to_sum(steps, chunk, complete);
    look_at_waiting(steps, param);
}

/* Queues the chunks of an aggregate that needs all contributions at once, after a rank's slice has become known. The
 * round waited for this rank before, so its Adasum is not queued yet. A chunk that is in the queue `full`, or whose
 * aggregate is computed, stays as it is. */
static void collect_anew(pd_steps *steps, pd_param *param)
{
    pd_round *round = &param->round;

    for (uint32_t c = 0; c < round->n_chunks && pd_is_robust(param->how); c++) {
        pd_chunk *chunk = &round->chunks[c];
        if (chunk->list == PD_CHUNK_FULL || pd_chunk_ends_at(round, chunk->summed)) continue;
        if (pd_chunk_is_complete(round, chunk)) pd_collect_file(steps, chunk);
    }
    if (pd_is_adasum(param->how) && pd_round_is_complete(round)) pd_collect_file(steps, &round->chunks[0]);
    look_at_waiting(steps, param);
}

void pd_chunks_list_anew(pd_steps *steps, pd_param *param)
{
    pd_round *round = &param->round;
    bool was_complete = true;

    if (round->together) return;
    if (pd_is_collected(pd_param_how(param))) {
        collect_anew(steps, param);
        return;
    }
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        pd_chunk *chunk = &round->chunks[c];
        if (chunk->list == PD_CHUNK_COMPLETE || pd_chunk_ends_at(round, chunk->summed)) continue;
        was_complete = false;
        pd_chunk_list_to_sum(steps, chunk,
                             pd_chunk_is_complete(round, chunk) &&
                                 (param->current != NULL || pd_round_is_complete(round)));
    }
    if (!was_complete) look_at_waiting(steps, param);
    steps->chunks.look = true;
}

bool pd_contribute_absent(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t step, uint64_t now_ns)
{
    pd_round *round = &param->round;

    if (round->open && pd_round_is_absent(round, rank)) return false;
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (pd_chunk_state(&round->chunks[c], rank) == PD_CONTRIBUTION_EMPTY)
            pd_contribute(steps, &round->chunks[c], rank, (pd_contribution){ .state = PD_CONTRIBUTION_ABSENT }, step,
                          now_ns);
    return true;
}

void pd_contribute_fixed(pd_steps *steps, pd_param *param)
{
    pd_round *round = &param->round;

    open_round(steps, param, param->fragment->fixed_ns);
    for (uint32_t c = 0; c < round->n_chunks; c++) {
        if (pd_is_collected(param->how))
            pd_collect_file(steps, &round->chunks[c]);
        else
            pd_chunk_list_to_sum(steps, &round->chunks[c], true);
        /* For an Adasum, pd_collect_file queues the whole parameter, so one call is enough. */
        if (pd_is_adasum(param->how)) break;
    }
    look_at_waiting(steps, param);
}

void pd_contribute_forget(pd_steps *steps, pd_param *param, uint32_t rank)
{
    pd_round *round = &param->round;

    pd_scalars_forget(param, rank);
    if (round->fixed || !round->open || pd_round_has_any(round)) return;
    round->open = false;
    steps->queue.n_open--;
    DL_DELETE2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
}

void pd_contribute_anew(pd_steps *steps, pd_param *param, uint64_t now_ns)
{
    pd_round *round = &param->round;
    bool kept = round->fixed && round->set != NULL;

    pd_round_reset(round);
    steps->queue.n_open--;
    if (!kept || !pd_round_has_any(round)) return;
    open_round(steps, param, now_ns);
    round->last_ns = now_ns;
    for (uint32_t c = 0; c < round->n_chunks && pd_is_collected(param->how); c++)
        pd_collect_file(steps, &round->chunks[c]);
}
