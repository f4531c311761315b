/* contribute.c - files the contributions of ranks, and queues the chunks that they make complete. */
#include "contribute.h"

#include "chunk_queues.h"
#include "fragment_ranks.h"
#include "pushed_hypers.h"
#include "round_scalars.h"
#include "step_group.h"

#include <utlist.h>

/* Removes the parameter from steps->queue.waiting if all contributions to its round have come, and it need not wait for
 * other parameters either. */
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

    open_round(steps, param, now_ns);
    round->last_ns = now_ns;
    if (param->current != NULL) pd_step_times_arrived(&steps->times, param->saved.step + 1, rank, now_ns);
    pd_round_add(round, chunk, rank, given);
    /* After the ranks that count were fixed, a contribution is one to the next step: pd_contribute_anew queues it. */
    if (!round->fixed) pd_chunk_came(steps, chunk, given.state == PD_CONTRIBUTION_HELD);
    if (round->together)
        pd_fragment_came(steps, param, rank, step, given.state != PD_CONTRIBUTION_ABSENT, now_ns);
    else
        look_at_waiting(steps, param);
}

void pd_contribute_ranges(pd_steps *steps, pd_param *param)
{
    if (param->round.together) return;
    if (pd_chunks_look(steps, param)) look_at_waiting(steps, param);
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
    open_round(steps, param, param->fragment->fixed_ns);
    pd_pushed_fixed(steps, param);
    pd_chunks_look(steps, param);
    look_at_waiting(steps, param);
}

void pd_contribute_forget(pd_steps *steps, pd_param *param, uint32_t rank)
{
    pd_round *round = &param->round;

    pd_scalars_forget(param, rank);
    pd_pushed_forget(param, rank);
    if (round->fixed || !round->open || pd_round_has_any(round)) return;
    round->open = false;
    steps->queue.n_open--;
    DL_DELETE2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
}

void pd_contribute_give_up(pd_steps *steps, pd_param *param)
{
    pd_round *round = &param->round;

    for (uint32_t c = 0; c < round->n_chunks; c++) {
        for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
            pd_contribution *given = &round->chunks[c].contributions[rank];
            if (given->state == PD_CONTRIBUTION_HELD) pd_frame_let_go(steps, given->frame);
            if (given->state == PD_CONTRIBUTION_SPILLED) pd_buffer_pool_give(param->buffers.spills, given->u.spill);
        }
        pd_chunk_unlist(steps, &round->chunks[c]);
    }
    DL_DELETE2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
    pd_round_reset(round);
    steps->queue.n_open--;
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
    pd_chunks_wait(steps, param);
}
