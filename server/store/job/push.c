/* push.c - checks a push as a whole, then files it as a whole. A push has pieces, each of which is one tensor or
 * chunk. */
#include "push.h"

#include "close_step.h"
#include "contribute.h"
#include "data_frame.h"
#include "frames.h"
#include "kernels.h"
#include "mutant.h"
#include "push_hypers.h"
#include "push_weight.h"
#include "replacement.h"
#include "round_scalars.h"

enum { SCAN_RANGE = 1 << 18 };

/* ---- checking a push ---- */

/* Returns whether the round of the step that the push is for has closed, with the rank's contribution or without it. */
static bool is_closed(const pd_param *param, const pd_request *frame)
{
    pd_admit admission = pd_param_admit(param, frame->rank, frame->u.data.step);

    return admission == PD_ADMIT_DUPLICATE || admission == PD_ADMIT_LATE;
}

/* Checks that the piece does not contradict earlier pushes of the rank to the open round: a rank
 * cannot give a gradient of a parameter and also report it absent. */
static int check_earlier(const pd_param *param, const pd_piece *piece, uint32_t rank, pd_error *err)
{
    if (!param->round.open) return PD_OK;
    if (piece->absent && pd_round_has_given(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: rank %u has given a gradient for step %llu before and "
                       "cannot be without one",
                       param->name, rank, (unsigned long long)param->saved.step + 1);
    if (!piece->absent && pd_round_is_absent(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: rank %u has said that it has no gradient for step %llu "
                       "and cannot give one",
                       param->name, rank, (unsigned long long)param->saved.step + 1);
    return PD_OK;
}

static int check_piece(const pd_job *job, const pd_piece *piece, const pd_request *frame, uint64_t number,
                       uint64_t *known, pd_error *err)
{
    pd_param *param = pd_piece_param(job, piece, err);
    int rc;

    if (param == NULL) return PD_INVALID_ARGUMENT;
    if ((rc = pd_push_check_weights(job, param, err)) != PD_OK) return rc;
    if (!piece->absent && (rc = pd_piece_check(param, piece, frame, err)) != PD_OK) return rc;
    if ((rc = pd_piece_check_once(param, piece, number, err)) != PD_OK) return rc;
    if (frame->u.data.n_hypers > 0 && (rc = pd_push_hypers_check(param, frame, number, known, err)) != PD_OK) return rc;
    /* A gradient whose round is closed is no error: it is a duplicate or late, and the push is answered, but not
     * filed. */
    if (is_closed(param, frame)) return PD_OK;
    if ((rc = pd_push_check_step(job, param, frame->rank, frame->u.data.step, err)) != PD_OK) return rc;
    if ((rc = check_earlier(param, piece, frame->rank, err)) != PD_OK) return rc;
    if ((rc = pd_replace_check_push(job, param, frame, err)) != PD_OK) return rc;
    return pd_weight_check(job, param, piece, frame, err);
}

/* Checks a push. If it ends the rank's step, and `settled` is true, also checks the parameters that the rank leaves
 * out. `settled` false: an earlier push of the rank may still be in the inbox (the queue of frames to scan), so this is
 * not known yet. */
static int check_push(pd_job *job, const pd_request *frame, bool settled, pd_error *err)
{
    uint64_t number = ++job->frames, known = 0;
    int rc;

    if (frame->u.data.step == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a push is for step 1 or later; rounds closed + 1");
    if (!(frame->u.data.weight >= 0 && frame->u.data.weight <= PD_WEIGHT_MOST))
        return pd_fail(err, PD_INVALID_ARGUMENT, "a weight is a number of examples, 0 to %.0f, not %g", PD_WEIGHT_MOST,
                       frame->u.data.weight);
    if (frame->u.data.n_hypers > PD_MAX_OPTIONS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%zu hyperparameters in a push, at most %d are allowed",
                       frame->u.data.n_hypers, PD_MAX_OPTIONS);
    for (size_t i = 0; i < frame->u.data.n; i++) {
        rc = check_piece(job, &frame->u.data.pieces[i], frame, number, &known, err);
        if (rc != PD_OK) return rc;
    }
    if (frame->u.data.n > 0 && pd_push_hypers_all_known(frame, known, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (frame->u.data.n_scalars > 0 &&
        (rc = pd_scalars_admit(&job->steps, frame, job->ranks[frame->rank].saved.nonce, err)) != PD_OK)
        return rc;
    return frame->u.data.close_step && settled ? pd_close_step_check(job, frame, number, err) : PD_OK;
}

/* Files the gradient that a piece of a push brings. Returns false if it is a duplicate: the rank has given this chunk
 * (section of a parameter) before. */
static bool file_gradient(pd_job *job, pd_param *param, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_chunk *chunk = pd_piece_chunk(param, piece);

    if (pd_chunk_state(chunk, frame->rank) != PD_CONTRIBUTION_EMPTY) return false;
    frame->u.data.buffer->refs++;
    param->saved.contributions++;
    job->steps.saved.contributions++;
    job->ranks[frame->rank].saved.contributions++;
    job->replayed += frame->u.data.step <= job->ranks[frame->rank].seen;
    pd_contribute(
        &job->steps, chunk, frame->rank,
        (pd_contribution){
            .u.at = piece->at, .frame = frame, .state = PD_CONTRIBUTION_HELD, .dtype = (uint8_t)piece->dtype },
        now_ns);
    return true;
}

static void file_piece(pd_job *job, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_param *param = &job->steps.params[piece->param];
    bool news;

    if (pd_round_count_chunks(&param->round, frame->rank) == 0)
        /* The rank contributes no element of this parameter, so its rounds do not wait for the rank. */
        return;
    news = (!is_closed(param, frame) || PD_MUTANT(duplicate_counted)) &&
           (piece->absent ? pd_contribute_absent(&job->steps, param, frame->rank, now_ns)
                          : file_gradient(job, param, piece, frame, now_ns));

    if (!news) {
        job->saved.duplicates++;
    } else if (frame->u.data.n_hypers > 0) {
        pd_push_hypers_keep(param, frame->rank);
        job->pushed_hypers++;
    }
    if (is_closed(param, frame)) return;
    pd_weight_keep(job, param, piece, frame);
    pd_replace_note_push(job, param, frame);
}

/* Files a push that was checked. Takes ownership of the push, and keeps it as long as a contribution lies in its
 * buffer. */
static void file_push(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[frame->rank];

    if (frame->u.data.buffer != NULL) frame->u.data.buffer->refs = 0;
    if (frame->rank == 0) pd_replace_drop(job);
    if (frame->u.data.step > rank->saved.step) rank->saved.step = frame->u.data.step;
    if (frame->u.data.n_scalars > 0) pd_scalars_file(&job->steps, frame, job->ranks[frame->rank].saved.nonce);
    for (size_t i = 0; i < frame->u.data.n; i++) file_piece(job, &frame->u.data.pieces[i], frame, now_ns);
    if (frame->u.data.close_step) pd_close_step_file(job, frame, now_ns);
    pd_frame_keep(&job->steps, frame);
}

/* ---- the inbox ---- */

/* Refuses a push. Marks the chunks that it brought as refused, so that the rank cannot end its step before it has sent
 * them again. */
static void refuse_push(pd_job *job, pd_request *frame, const pd_error *err)
{
    pd_close_step_note_refusal(job, frame);
    pd_frame_refuse(job, frame, err);
}

void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns)
{
    bool scanned = job->steps.values.at[PD_JOB_KEY_NONFINITE] == PD_REJECT &&
                   (request->u.data.buffer != NULL || request->u.data.close_step);
    pd_error err;

    if (pd_frame_may_come(job, request, &err) != PD_OK) {
        pd_frame_refuse(job, request, &err);
    } else if (check_push(job, request, !scanned, &err) != PD_OK) {
        refuse_push(job, request, &err);
    } else if (scanned) {
        pd_request_queue_add(&job->inbox, request);
    } else {
        file_push(job, request, now_ns);
    }
}

/* ---- scanning for infinities and NaN (nonfinite = reject) ---- */

static bool piece_finite(const pd_piece *piece, int threads)
{
    bool finite = true;
    (void)threads;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(&& : finite) if (piece->count > SCAN_RANGE)
    for (int64_t first = 0; first < piece->count; first += SCAN_RANGE) {
        int64_t n = piece->count - first < SCAN_RANGE ? piece->count - first : SCAN_RANGE;
        const char *at = (const char *)piece->at + (size_t)first * pd_dtype_size(piece->dtype);
        finite = finite && pd_all_finite(at, piece->dtype, n);
    }
    return finite;
}

static int check_finite(const pd_job *job, const pd_request *frame, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        if (piece->absent || piece_finite(piece, job->steps.config->threads)) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.100s: Encountered nan or inf values in the gradient, which job "
                       "%.60s rejects (nonfinite = reject)! To mitigate, check if nan inputs are being passed into the "
                       "network or nan gradients are being passed to the optimizer; try a lower learning rate, another "
                       "schedule, a later start_preconditioning_step, clipping of gradients. Push again for step %llu",
                       job->steps.params[piece->param].name, job->steps.name, (unsigned long long)frame->u.data.step);
    }
    return PD_OK;
}

void pd_push_take_scanned(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_error err;

    if (pd_frame_may_come(job, frame, &err) != PD_OK)
        pd_frame_refuse(job, frame, &err);
    else if (check_finite(job, frame, &err) != PD_OK || check_push(job, frame, true, &err) != PD_OK)
        refuse_push(job, frame, &err);
    else
        file_push(job, frame, now_ns);
}
