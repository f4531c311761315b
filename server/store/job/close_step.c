/* close_step.c - a push may end its rank's step (close_step): then each parameter that the rank has not pushed in
 * this step gets no gradient from this rank.
 *
 * The rank is filed as absent (without a gradient) in the round of each parameter that it left out. If the push is
 * repeated, it finds the rank absent already and changes nothing. pd_rank.ended remembers that, so that a repeated push
 * costs nothing; it need not be kept in images.
 *
 * A parameter whose push was refused does not count as left out, because its gradient would be lost unnoticed. The
 * rank cannot end the step until it has pushed that parameter again or reported that it has no gradient of it. */
#include "close_step.h"

#include "contribute.h"
#include "data_frame.h"

/* Returns whether the rank leaves this parameter out of the step that the frame ends: it has sent nothing of the
 * parameter for this step, and the step's round is not closed. An open round of an earlier step says nothing of this
 * one. */
static bool is_left_out(const pd_param *param, const pd_request *frame)
{
    pd_admit admission = pd_param_admit(param, frame->rank, frame->u.data.step);

    if (admission == PD_ADMIT_EARLY) return pd_round_count_chunks(&param->round, frame->rank) > 0;
    return admission != PD_ADMIT_DUPLICATE && pd_round_is_silent(&param->round, frame->rank);
}

static int check_one(const pd_job *job, const pd_param *param, const pd_request *frame, uint64_t number, pd_error *err)
{
    int rc;

    if ((rc = pd_push_check_weights(job, param, err)) != PD_OK) return rc;
    if (param->frame.number == number || !is_left_out(param, frame)) return PD_OK;
    if ((rc = pd_push_check_step(job, param, frame->rank, frame->u.data.step, err)) != PD_OK) return rc;
    if (!pd_round_was_refused(&param->round, frame->rank)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "%.160s: rank %u cannot end step %llu: its push of this parameter was "
                   "refused; push it again, or say that it is absent",
                   param->name, frame->rank, (unsigned long long)frame->u.data.step);
}

int pd_close_step_check(pd_job *job, const pd_request *frame, uint64_t number, pd_error *err)
{
    pd_rank *rank = &job->ranks[frame->rank];
    int rc;

    if (frame->u.data.step <= rank->ended) return PD_OK;
    if (rank->obstacle < job->steps.n_params &&
        (rc = check_one(job, &job->steps.params[rank->obstacle], frame, number, err)) != PD_OK)
        return rc;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        if ((rc = check_one(job, &job->steps.params[i], frame, number, err)) == PD_OK) continue;
        rank->obstacle = i;
        return rc;
    }
    return PD_OK;
}

void pd_close_step_file(pd_job *job, const pd_request *frame, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[frame->rank];
    /* rounds up to this one have closed for all parameters */
    uint64_t closed = job->steps.n_params > 0 ? UINT64_MAX : 0;

    if (frame->u.data.step <= rank->ended) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        if (is_left_out(param, frame)) pd_contribute_absent(&job->steps, param, frame->rank, now_ns);
        if (param->saved.step < closed) closed = param->saved.step;
    }
    rank->ended = frame->u.data.step > closed ? frame->u.data.step : closed;
}

void pd_close_step_note_refusal(pd_job *job, const pd_request *frame)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        pd_round *round = piece->param < job->steps.n_params ? &job->steps.params[piece->param].round : NULL;
        int64_t chunk = piece->first / (int64_t)job->steps.config->chunk_elements;
        if (round == NULL || piece->absent || chunk < 0 || chunk >= round->n_chunks ||
            pd_param_admit(&job->steps.params[piece->param], frame->rank, frame->u.data.step) != PD_ADMIT_NEW)
            continue;
        if (pd_chunk_state(&round->chunks[chunk], frame->rank) == PD_CONTRIBUTION_EMPTY)
            round->chunks[chunk].contributions[frame->rank].refused = true;
    }
}
