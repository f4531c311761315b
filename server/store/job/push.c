/* push.c - checks a push as a whole, then files it as a whole. Each piece of a push is one tensor or chunk.
 *
 * A push may end its rank's step (close_step): then the rank is filed as absent in the round of each parameter that it
 * has not pushed in this step. If the push is repeated, the step has ended already, so nothing changes and no parameter
 * is examined. If the push of a parameter was refused, the parameter does not count as left
 * out, because its gradient would be lost unnoticed: the rank cannot end the step until it has pushed that parameter
 * again, or reported that it has no gradient of it. */
#include "push.h"

#include "checkpoint_policy.h"
#include "contribute.h"
#include "data_frame.h"
#include "fragment.h"
#include "initial_weights.h"
#include "leases.h"
#include "kernels.h"
#include "mutant.h"
#include "pushed_hypers.h"
#include "ranks.h"
#include "replacement.h"
#include "round_scalars.h"

#include <stdlib.h>

enum { SCAN_RANGE = 1 << 18 };

/* Returns the fragment of a push's first piece; NULL: it has no pieces, since it only ends its rank's step, or they are
 * of no parameter of the job. */
static pd_fragment *fragment_of(const pd_job *job, const pd_request *frame)
{
    if (frame->u.data.n == 0 || frame->u.data.pieces[0].param >= job->steps.n_params) return NULL;
    return job->steps.params[frame->u.data.pieces[0].param].fragment;
}

/* Returns whether the parameter's round for the push's step has closed, with the rank's contribution or without it. */
static bool is_closed(const pd_job *job, const pd_param *param, const pd_request *frame)
{
    pd_admit admission = pd_param_admit(&job->steps, param, frame->rank, frame->u.data.step);

    return admission == PD_ADMIT_DUPLICATE || admission == PD_ADMIT_LATE;
}

/* Checks that the piece does not contradict earlier pushes of the rank to the open round: a rank
 * cannot give a gradient of a parameter and also report it absent. */
static int check_earlier(const pd_param *param, const pd_piece *piece, uint32_t rank, pd_error *err)
{
    if (!param->round.open) return PD_OK;
    if (piece->absent && pd_round_has_given(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: rank %u has given a gradient for step %llu already and cannot report it absent",
                       param->name, rank, (unsigned long long)param->saved.step + 1);
    if (!piece->absent && pd_round_is_absent(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: rank %u has reported no gradient for step %llu and cannot give one", param->name, rank,
                       (unsigned long long)param->saved.step + 1);
    return PD_OK;
}

/* Checks what a piece says, whatever the rank has given before. */
static int check_piece(pd_job *job, const pd_piece *piece, const pd_request *frame, uint64_t number, uint64_t *known,
                       pd_error *err)
{
    pd_param *param = pd_piece_param(job, piece, err);
    int rc;

    if (param == NULL) return PD_INVALID_ARGUMENT;
    if ((rc = pd_push_check_weights(job, param, err)) != PD_OK) return rc;
    if (!piece->absent && (rc = pd_piece_check(param, piece, frame, err)) != PD_OK) return rc;
    if ((rc = pd_piece_check_once(param, piece, number, err)) != PD_OK) return rc;
    return frame->u.data.n_hypers > 0 ? pd_pushed_check(&job->steps, param, frame, number, known, err) : PD_OK;
}

/* Checks that a piece, which check_piece has accepted, goes with what the rank has given before. */
static int check_place(pd_job *job, const pd_piece *piece, const pd_request *frame, pd_error *err)
{
    pd_param *param = &job->steps.params[piece->param];
    int rc;

    /* A gradient whose round is closed is a duplicate or late, which is no error: the push is answered, but this piece
     * is not filed. */
    if (is_closed(job, param, frame)) return PD_OK;
    if ((rc = pd_push_check_step(job, param, frame->rank, frame->u.data.step, err)) != PD_OK) return rc;
    if ((rc = check_earlier(param, piece, frame->rank, err)) != PD_OK) return rc;
    if ((rc = pd_replace_check_push(job, param, frame, err)) != PD_OK) return rc;
    return pd_weight_check(job, param, piece, frame, err);
}

/* Returns whether the rank leaves this parameter out of the step that the frame ends: it has sent nothing of the
 * parameter for this step, and the step's round has not closed. If the parameter's open round is that of an earlier
 * step, the rank cannot have sent anything for this step yet. */
static bool is_left_out(const pd_job *job, const pd_param *param, const pd_request *frame)
{
    pd_admit admission = pd_param_admit(&job->steps, param, frame->rank, frame->u.data.step);

    if (admission == PD_ADMIT_EARLY) return pd_round_count_chunks(&param->round, frame->rank) > 0;
    return admission == PD_ADMIT_NEW && pd_round_is_silent(&param->round, frame->rank);
}

/* Returns whether a push of the parameter for the step that the frame ends was refused, and the rank has not sent it
 * again. Of the pushes that came too early only the last one is known: who has sent that one again has read of all. */
static bool was_refused(const pd_job *job, const pd_param *param, const pd_request *frame)
{
    const pd_rank *rank = &job->ranks[frame->rank];

    return pd_fragment_was_refused(param, frame->rank, frame->u.data.step) ||
           (rank->early.step == frame->u.data.step && rank->early.param == param->index);
}

static int check_one(const pd_job *job, const pd_param *param, const pd_request *frame, uint64_t number, pd_error *err)
{
    int rc;

    if ((rc = pd_push_check_weights(job, param, err)) != PD_OK) return rc;
    if (param->frame.number == number || !is_left_out(job, param, frame)) return PD_OK;
    if ((rc = pd_push_check_step(job, param, frame->rank, frame->u.data.step, err)) != PD_OK) return rc;
    if (!was_refused(job, param, frame)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "%.160s: rank %u cannot end step %llu: its push of this parameter was refused; push it again, or "
                   "say that it is absent",
                   param->name, frame->rank, (unsigned long long)frame->u.data.step);
}

/* Returns whether the rank has ended the step that the frame ends, so that nothing of it is left to file. Where sets
 * are open, the fragments know: what they have released may come again, and steps may close before the rank ends
 * them. */
static bool has_ended(const pd_job *job, const pd_request *frame)
{
    if (!job->steps.sets.open) return frame->u.data.step <= job->ranks[frame->rank].ended;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        if (!pd_fragment_has_ended(&job->steps, &job->steps.fragments[f], frame->rank, frame->u.data.step))
            return false;
    return true;
}

/* Checks that the frame may end its rank's step. Examines all parameters once for each step, and none when a push that
 * has ended the step is repeated. After a refusal, the next check begins with the parameter that caused it. `number` is
 * the frame's number, which the caller has stored in pd_param.frame of each parameter that the frame names.
 * PD_FAILED_PRECONDITION: a push of another parameter was refused, and the rank has not pushed this parameter again or
 * reported that it has no gradient of it. */
static int check_close(pd_job *job, const pd_request *frame, uint64_t number, pd_error *err)
{
    pd_rank *rank = &job->ranks[frame->rank];
    int rc;

    if (has_ended(job, frame)) return PD_OK;
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

/* Files the rank as absent in the round of each parameter of which it has sent nothing in this step. */
static void file_close(pd_job *job, const pd_request *frame, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[frame->rank];
    /* last step that all parameters have closed */
    uint64_t closed = job->steps.n_params > 0 ? UINT64_MAX : 0;

    if (has_ended(job, frame)) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        if (is_left_out(job, param, frame))
            pd_contribute_absent(&job->steps, param, frame->rank, frame->u.data.step, now_ns);
        if (param->saved.step < closed) closed = param->saved.step;
    }
    rank->ended = frame->u.data.step > closed ? frame->u.data.step : closed;
}

/* Marks a chunk of a refused push as refused. */
static void note_refused_piece(pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame)
{
    int64_t chunk = piece->first / (int64_t)job->steps.config->chunk_elements;
    pd_contribution *given;

    if (chunk < 0 || chunk >= param->round.n_chunks) return;
    switch (pd_param_admit(&job->steps, param, frame->rank, frame->u.data.step)) {
    case PD_ADMIT_NEW:
        pd_fragment_refuse(&job->steps, param->fragment, frame->rank, frame->u.data.step);
        given = &param->round.chunks[chunk].contributions[frame->rank];
        given->refused = given->refused || given->state == PD_CONTRIBUTION_EMPTY;
        break;
    case PD_ADMIT_EARLY:
        job->ranks[frame->rank].early.step = frame->u.data.step;
        job->ranks[frame->rank].early.param = param->index;
        break;
    case PD_ADMIT_DUPLICATE:
    case PD_ADMIT_LATE: break;
    }
}

/* Marks the chunks of a refused push as refused. The rank cannot end its step before it has sent them again. */
static void note_refusal(pd_job *job, const pd_request *frame)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        if (piece->param < job->steps.n_params && !piece->absent)
            note_refused_piece(job, &job->steps.params[piece->param], piece, frame);
    }
}

/* Checks that all pieces of a push are of one fragment, if its ranks are fixed for a whole fragment: the push is
 * told in which step of this fragment it may count. */
static int check_fragments(const pd_job *job, const pd_request *frame, pd_error *err)
{
    const pd_param *first = frame->u.data.n > 0 ? &job->steps.params[frame->u.data.pieces[0].param] : NULL;

    for (size_t i = 1; job->steps.sets.open && i < frame->u.data.n; i++) {
        const pd_param *other = &job->steps.params[frame->u.data.pieces[i].param];
        if (other->fragment == first->fragment) continue;
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "a push has %.100s of fragment %u and %.100s of fragment %u: push the parameters of each fragment "
            "in frames of their own, since it has a step of its own",
            first->name, first->fragment->declared, other->name, other->fragment->declared);
    }
    return PD_OK;
}

/* Checks a push, and releases what the rank has given to an earlier step if this push takes its place. If the push
 * ends the rank's step and `settled` is true, also checks the parameters that the rank leaves out. `settled` false: an
 * earlier push of the rank may still be in the inbox, so these parameters are not known yet. */
static int check_push(pd_job *job, const pd_request *frame, bool settled, pd_error *err)
{
    uint64_t number = ++job->counts.frames, known = 0;
    int rc;

    if (frame->u.data.step == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "invalid step 0: a push is for the number of closed rounds + 1");
    if (!(frame->u.data.weight >= 0 && frame->u.data.weight <= PD_WEIGHT_MOST))
        return pd_fail(err, PD_INVALID_ARGUMENT, "a weight is a number of examples, 0 to %.0f, not %g", PD_WEIGHT_MOST,
                       frame->u.data.weight);
    if (job->steps.sets.weight_cap > 0 && frame->u.data.weight > job->steps.sets.weight_cap)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "weight %g is more than weight_cap = %g, the most that job %.100s takes", frame->u.data.weight,
                       job->steps.sets.weight_cap, job->steps.name);
    if (pd_leases_check(&job->steps, frame->u.data.wants, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (frame->u.data.n_hypers > PD_MAX_OPTIONS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%zu hyperparameters in a push, at most %d are allowed",
                       frame->u.data.n_hypers, PD_MAX_OPTIONS);
    for (size_t i = 0; i < frame->u.data.n; i++) {
        rc = check_piece(job, &frame->u.data.pieces[i], frame, number, &known, err);
        if (rc != PD_OK) return rc;
    }
    if (check_fragments(job, frame, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (frame->u.data.n > 0 && pd_pushed_check_known(&job->steps, frame, known, err) != PD_OK)
        return PD_INVALID_ARGUMENT;
    pd_fragments_overtaken(&job->steps, fragment_of(job, frame), frame->rank, frame->u.data.step);
    for (size_t i = 0; i < frame->u.data.n; i++)
        if ((rc = check_place(job, &frame->u.data.pieces[i], frame, err)) != PD_OK) return rc;
    if (frame->u.data.n_scalars > 0 &&
        (rc = pd_scalars_admit(&job->steps, frame, job->ranks[frame->rank].saved.nonce, err)) != PD_OK)
        return rc;
    return frame->u.data.close_step && settled ? check_close(job, frame, number, err) : PD_OK;
}

/* Returns how many steps of the parameter the rank's process had seen closed when it joined. */
static uint64_t steps_seen(const pd_job *job, const pd_param *param, uint32_t rank)
{
    return param->fragment->declared == 0 ? job->ranks[rank].seen : param->fragment->ranks[rank].seen;
}

/* Files the gradient that a piece of a push brings. Returns false if it is a duplicate: the rank has given this chunk
 * before. */
static bool file_gradient(pd_job *job, pd_param *param, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_chunk *chunk = pd_piece_chunk(param, piece);

    if (pd_chunk_state(chunk, frame->rank) != PD_CONTRIBUTION_EMPTY) return false;
    frame->u.data.buffer->refs++;
    param->saved.contributions++;
    job->steps.saved.contributions++;
    job->ranks[frame->rank].saved.contributions++;
    job->counts.replayed += frame->u.data.step <= steps_seen(job, param, frame->rank);
    pd_contribute(
        &job->steps, chunk, frame->rank,
        (pd_contribution){
            .u.at = piece->at, .frame = frame, .state = PD_CONTRIBUTION_HELD, .dtype = (uint8_t)piece->dtype },
        frame->u.data.step, now_ns);
    return true;
}

static void file_piece(pd_job *job, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_param *param = &job->steps.params[piece->param];
    bool news;

    if (pd_round_count_chunks(&param->round, frame->rank) == 0)
        /* The rank contributes no element of this parameter: its rounds do not wait for the rank. */
        return;
    news = (!is_closed(job, param, frame) || PD_MUTANT(duplicate_counted)) &&
           (piece->absent ? pd_contribute_absent(&job->steps, param, frame->rank, frame->u.data.step, now_ns)
                          : file_gradient(job, param, piece, frame, now_ns));

    if (!news) {
        job->saved.duplicates += pd_param_admit(&job->steps, param, frame->rank, frame->u.data.step) != PD_ADMIT_LATE;
    } else if (frame->u.data.n_hypers > 0) {
        pd_pushed_keep(param, frame->rank);
        job->counts.pushed_hypers++;
    }
    if (is_closed(job, param, frame)) return;
    pd_weight_keep(job, param, piece, frame);
    pd_replace_note_push(job, param, frame);
}

/* Chooses the fragment for which a push is answered that has no pieces: the one that takes the push's step last. */
static pd_fragment *furthest_behind(const pd_job *job)
{
    pd_fragment *behind = &job->steps.fragments[0];

    for (uint32_t f = 1; f < job->steps.n_fragments; f++)
        if (job->steps.fragments[f].fixed < behind->fixed) behind = &job->steps.fragments[f];
    return behind;
}

/* Tells the loop thread in which step a push may count, before anything of it is filed. Returns false if nothing may
 * be filed, since the push is made of a share that is not leased to the rank: it is late. */
static bool say_filed(pd_job *job, pd_request *frame)
{
    pd_fragment *own = fragment_of(job, frame), *fragment = own != NULL ? own : furthest_behind(job);
    pd_effect *effect = pd_answer(frame, PD_EFF_FILED);
    uint64_t step;
    pd_filed how = pd_fragment_judge(&job->steps, fragment, frame->rank, frame->u.data.step, &step);
    bool refused = how == PD_FILED_FOR && fragment->number == 0 && pd_leases_refuse(&job->steps, frame);

    if (refused) {
        how = PD_FILED_LATE;
        step = fragment->fixed;
    }

    if (how == PD_FILED_FOR) pd_fragment_note(fragment, frame);
    if (how == PD_FILED_LATE) pd_fragment_late(fragment, frame->rank, frame->u.data.step);
    effect->job = job->steps.number;
    effect->u.filed.how = how;
    effect->u.filed.step = step;
    pd_effects_add(job->steps.outbox, effect);
    return !refused;
}

/* Files a push that was checked. Takes ownership of the push, and frees it when no contribution uses its buffer any
 * more. */
static void file_push(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[frame->rank];
    bool filed = true;

    if (job->steps.sets.open && frame->ticket.id != 0) filed = say_filed(job, frame);
    if (!filed) {
        pd_frame_finish(&job->steps, frame);
        return;
    }

    if (frame->u.data.buffer != NULL) frame->u.data.buffer->refs = 0;
    pd_replace_drop_of(job, frame->rank);
    if (frame->u.data.step > rank->saved.step) rank->saved.step = frame->u.data.step;
    if (frame->u.data.n_scalars > 0) pd_scalars_file(&job->steps, frame, job->ranks[frame->rank].saved.nonce);
    for (size_t i = 0; i < frame->u.data.n; i++) file_piece(job, &frame->u.data.pieces[i], frame, now_ns);
    if (frame->u.data.close_step) file_close(job, frame, now_ns);
    pd_frame_keep(&job->steps, frame);
}

/* Refuses a push, and marks its chunks as refused (note_refusal). Takes ownership of the push. */
static void refuse_push(pd_job *job, pd_request *frame, const pd_error *err)
{
    note_refusal(job, frame);
    pd_frame_refuse(job, frame, err);
}

/* Returns whether the push may take the place of an earlier one of its rank. */
static bool overtakes(const pd_job *job, const pd_request *frame)
{
    const pd_fragment *only = fragment_of(job, frame);

    for (uint32_t f = 0; job->steps.sets.open && f < job->steps.n_fragments; f++) {
        uint64_t before = job->steps.fragments[f].ranks[frame->rank].step;
        if ((only == NULL || only == &job->steps.fragments[f]) && before > 0 && before < frame->u.data.step)
            return true;
    }
    return false;
}

/* Returns whether the shard can go back to a step. */
static bool can_go_back_to(const pd_job *job, uint64_t step)
{
    uint64_t first, last;

    if (pd_kept_steps_has(&job->checkpointing.kept, step)) return true;
    return pd_checkpoint_policy_replays(job, &first, &last) && step >= first && step <= last &&
           step <= job->checkpointing.durable_step;
}

/* Takes over to which step, as the rank knows, all shards can go back: the shard keeps what it needs to do so. Ignores
 * a step to which it cannot. */
static void note_common(pd_job *job, const pd_request *request)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint64_t common = request->u.data.common;

    if (common <= checkpointing->common || !can_go_back_to(job, common)) return;
    checkpointing->floored = checkpointing->common > 0;
    checkpointing->floor = checkpointing->common;
    checkpointing->common = common;
}

void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns)
{
    bool scanned = job->steps.values.at[PD_JOB_KEY_NONFINITE] == PD_REJECT &&
                   (request->u.data.buffer != NULL || request->u.data.close_step);
    pd_error err;

    /* A push whose values are looked at first is checked then, if it would take the place of an earlier one. */
    if (pd_frame_may_come(job, request, &err) != PD_OK) {
        pd_frame_refuse(job, request, &err);
        return;
    }
    note_common(job, request);
    if (!(scanned && overtakes(job, request)) && check_push(job, request, !scanned, &err) != PD_OK) {
        refuse_push(job, request, &err);
    } else if (scanned) {
        pd_request_queue_add(&job->waiting.inbox, request);
    } else {
        file_push(job, request, now_ns);
    }
}

static bool piece_finite(const pd_piece *piece, int threads)
{
    bool finite = true;
    (void)threads;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(&& : finite) if (piece->count > SCAN_RANGE)
    for (int64_t first = 0; first < piece->count; first += SCAN_RANGE) {
        int64_t n = piece->count - first < SCAN_RANGE ? piece->count - first : SCAN_RANGE;
        pd_vector_run run = pd_vector_run_of(piece->at, piece->dtype, first, piece->count);
        finite = finite && pd_vector_run_is_finite(&run, 0, n);
    }
    return finite;
}

static int check_finite(const pd_job *job, const pd_request *frame, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        if (piece->absent || piece_finite(piece, job->steps.config->threads)) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.100s: Encountered nan or inf values in the gradient, which job %.60s rejects (nonfinite = "
                       "reject)! To mitigate, check if nan inputs are being passed into the network or nan gradients "
                       "are being passed to the optimizer; try a lower learning rate, another schedule, a later "
                       "start_preconditioning_step, clipping of gradients. Push again for step %llu",
                       job->steps.params[piece->param].name, job->steps.name, (unsigned long long)frame->u.data.step);
    }
    return PD_OK;
}

/* Handles a push from the inbox: looks for infinities and NaN, then files or refuses it. Takes ownership of the
 * push. */
static void take_scanned(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_error err;

    if (pd_frame_may_come(job, frame, &err) != PD_OK)
        pd_frame_refuse(job, frame, &err);
    else if (check_finite(job, frame, &err) != PD_OK || check_push(job, frame, true, &err) != PD_OK)
        refuse_push(job, frame, &err);
    else
        file_push(job, frame, now_ns);
}

#define NS_PER_BYTE 0.25 /* estimated nanoseconds of one core to scan or copy one byte of a frame */
/* estimated nanoseconds of one core to file a frame; more for each of its pieces; more for each parameter of the job if
 * the frame ends its rank's step */
#define FRAME_NS 1000.0
#define PIECE_NS 300.0
#define LEFT_OUT_NS 60.0

void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns)
{
    if (pd_job_averages_init(job) && request->u.data.replaces == 0)
        pd_init_file(job, request, now_ns);
    else
        pd_request_queue_add(&job->waiting.inbox, request);
}

void pd_job_stalled(pd_job *job, pd_request *request)
{
    if (job->waiting.inbox.first != NULL && !PD_MUTANT(stalled_overtakes))
        pd_request_queue_add(&job->waiting.inbox, request);
    else
        pd_rank_stalled(job, request);
}

static double cost_of(const pd_job *job, const pd_request *request)
{
    const pd_buffer *buffer = request->u.data.buffer;
    double cost_ns = FRAME_NS + PIECE_NS * (double)request->u.data.n;

    if (buffer != NULL) cost_ns += NS_PER_BYTE * (double)buffer->size;
    if (request->u.data.close_step && !has_ended(job, request)) cost_ns += LEFT_OUT_NS * job->steps.n_params;
    return cost_ns;
}

void pd_job_take_inbox(pd_job *job, uint64_t now_ns)
{
    double cost_ns = 0;

    while (job->waiting.inbox.first != NULL && cost_ns < job->steps.config->batch_ns) {
        pd_request *request = pd_request_queue_take(&job->waiting.inbox);
        if (request->kind == PD_REQ_STALLED) {
            pd_rank_stalled(job, request);
            continue;
        }
        cost_ns += cost_of(job, request);
        if (request->kind == PD_REQ_PUSH) {
            take_scanned(job, request, now_ns);
        } else if (request->u.data.replaces != 0) {
            pd_replace_take(job, request);
        } else {
            job->reports.init_ns = now_ns;
            pd_init_take(job, request);
        }
    }
}
