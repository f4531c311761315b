/* initial_weights.c - initial weights of a job: which ranks send them, whose value is taken if several ranks send the
 * same element, and when the weights are published.
 *
 * If the job key initial_weights is `lowest`, rank 0 sends each parameter that is not ranged. Of a ranged parameter
 * every rank sends the elements of the range that it has declared. If several ranks send the same element, the value
 * from the lowest rank is taken, in whatever order they arrive. All that a rank sends of a parameter must come from
 * one process. If another process takes over the rank and sends initial weights of the parameter before the parameter
 * is published, the earlier process's weights are discarded.
 *
 * If the sets of ranks are open (step/fragment.h), the rank that sends whole parameters is the first that declares, in
 * a job whose workers take any rank; and another one, if it is removed before all its weights have come
 * (membership.c). It may come back with weights that nobody asks for any more: they are answered, and not used. A
 * ranged parameter is published as soon as all its elements have come.
 *
 * If initial_weights is `mean`, every rank sends its elements of every parameter, and the job begins with the mean of
 * the ranks (as Trax does: "make weights and state same across hosts"). The initial weights then are contributions to
 * a round of their own, before the first step. When this round closes, the mean is published and no step is taken:
 *
 *   - The weights wait in the frames in which they came.
 *   - work.c sums them in rank order, in whatever way the job aggregates gradients.
 *   - If ranks are missing after step_timeout, they are reported.
 *   - If a rank sends a chunk twice, the first one counts.
 *
 * With `mean`, too, a new process may take over a rank. If the earlier process has sent all its elements of a
 * parameter, these are kept. If it has sent only some, the new process must send all and replaces them. But a chunk
 * cannot be taken out of a sum: if a chunk of the earlier process is summed already, the round of the parameter begins
 * anew, and the workers of the other ranks are told to come again, since their Declare says that they are to send
 * theirs. To make this rare, chunks are summed only when all ranks have sent the whole parameter. Only the chunks of
 * ranks over their quota of memory are summed earlier. Where sets are open, the new process is refused. */
#include "initial_weights.h"

#include "chunk_queues.h"
#include "contribute.h"
#include "convert.h"
#include "data_frame.h"
#include "work.h"
#include "kernels.h"
#include "mutant.h"
#include "ranks.h"

#include <stdlib.h>

static bool gives_init(const pd_job *job, const pd_param *param, uint32_t rank)
{
    return param->ranged || pd_job_averages_init(job) ? pd_round_count_chunks(&param->round, rank) > 0
                                                      : rank == job->membership.giver;
}

bool pd_init_has_come(const pd_job *job, const pd_param *param, uint32_t rank)
{
    const pd_round *round = &param->round;

    if (param->current != NULL) return true;
    if (pd_job_averages_init(job)) return !pd_round_misses(round, rank);
    if (!param->ranged) return false;
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (!round->chunks[c].contributions[rank].landed && pd_round_chunk_range(round, &round->chunks[c], rank).n > 0)
            return false;
    return true;
}

bool pd_init_is_owed(const pd_job *job, const pd_param *param, uint32_t rank)
{
    return gives_init(job, param, rank) && !pd_init_has_come(job, param, rank);
}

bool pd_init_is_asked_of(const pd_job *job, uint32_t rank)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (pd_init_is_owed(job, &job->steps.params[i], rank)) return true;
    return false;
}

/* Returns whether weights of the parameter are answered and not used: another rank sends them, or has sent them. */
static bool is_unasked(const pd_job *job, const pd_param *param, uint32_t rank)
{
    return job->steps.sets.open && !pd_job_averages_init(job) &&
           (param->current != NULL || !gives_init(job, param, rank));
}

static uint64_t initialiser_of(const pd_job *job, const pd_param *param, uint32_t rank)
{
    if (pd_job_averages_init(job)) return job->ranks[rank].saved.initialiser;
    return param->ranged ? param->round.ranges.at[rank].initialiser : param->saved.initialiser;
}

/* For initial_weights = mean: returns whether an earlier process with this rank sent some of the rank's initial weights
 * of this parameter, but not all. */
static bool is_taken_over(const pd_job *job, pd_param *param, uint32_t rank)
{
    const pd_contribution *told = pd_round_first_contribution(&param->round, rank);

    return told != NULL && told->weighed && told->process != (uint16_t)job->ranks[rank].saved.process &&
           pd_round_misses(&param->round, rank);
}

/* Returns whether some initial weights of a rank are summed already, and cannot be taken out of the sum. */
static bool is_summed(const pd_param *param, uint32_t rank)
{
    for (uint32_t c = 0; c < param->round.n_chunks; c++)
        if (pd_chunk_state(&param->round.chunks[c], rank) == PD_CONTRIBUTION_SUMMED) return true;
    return false;
}

/* Checks that initial weights which an earlier process with this rank has sent can be discarded.
 * PD_FAILED_PRECONDITION: some of them are summed already, and the fragment has records of who has sent what. */
static int check_giver(const pd_job *job, pd_param *param, uint32_t rank, pd_error *err)
{
    if (!param->round.together || !is_taken_over(job, param, rank) || !is_summed(param, rank) || PD_MUTANT(init_mixed))
        return PD_OK;
    return pd_fail(
        err, PD_FAILED_PRECONDITION,
        "%.160s: part of rank %u's initial weights has come from another process and is already in the mean; "
        "all must come from one process: let that process return, or drop the job and start again",
        param->name, rank);
}

static int check_piece(const pd_job *job, const pd_piece *piece, const pd_request *frame, uint64_t number,
                       pd_error *err)
{
    pd_param *param = pd_piece_param(job, piece, err);
    int rc;

    if (param == NULL) return PD_INVALID_ARGUMENT;
    if (is_unasked(job, param, frame->rank)) return PD_OK;
    if (!param->ranged && frame->rank != job->membership.giver && !pd_job_averages_init(job))
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s: rank %u sends the initial weights, this is rank %u",
                       param->name, job->membership.giver, frame->rank);
    /* The answer to Declare tells of a whole parameter whether it has weights. So of one that is cut, a new process
     * also sends portions that have some. */
    if (param->current != NULL && !param->cut &&
        initialiser_of(job, param, frame->rank) != job->ranks[frame->rank].saved.nonce)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s has weights already (step %llu): pull them", param->name,
                       (unsigned long long)param->saved.step);
    if (piece->absent)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: initial weights cannot be absent", param->name);
    if ((rc = pd_piece_check(param, piece, frame, err)) != PD_OK) return rc;
    if (pd_job_averages_init(job) && param->current == NULL &&
        (rc = check_giver(job, param, frame->rank, err)) != PD_OK)
        return rc;
    return pd_piece_check_once(param, piece, number, err);
}

static int check(pd_job *job, const pd_request *frame, pd_error *err)
{
    uint64_t number = ++job->counts.frames;

    for (size_t i = 0; i < frame->u.data.n; i++) {
        int rc = check_piece(job, &frame->u.data.pieces[i], frame, number, err);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

/* Returns whether the parameter has its weights already. If it has, a frame with its initial weights is a repetition,
 * from a process that has not received the answer. The frame is answered again, but its weights are not used. */
static bool is_repeated(const pd_param *param)
{
    return param->current != NULL;
}

/* Allocates memory for the weights of all parameters in the frame, before any weight is written. PD_NO_MEMORY: no
 * weight is written, and the caller refuses the frame. */
static int make_weights(pd_job *job, const pd_request *frame, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        pd_param *param = &job->steps.params[frame->u.data.pieces[i].param];
        if (is_repeated(param) || is_unasked(job, param, frame->rank) || param->next != NULL) continue;
        if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its weights", param->name);
        param->next->job = job->steps.number;
        param->next->param = param->index;
        param->next->version = param->saved.step;
    }
    return PD_OK;
}

/* Returns the first range in [at, end) of which no lower rank has sent initial weights, whose values take precedence;
 * its n is 0 if there is none. */
static pd_range free_run(const pd_round *round, const pd_chunk *chunk, uint32_t rank, int64_t at, int64_t end)
{
    int64_t stop = end;
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < rank; r++) {
            pd_range lower = pd_round_chunk_range(round, chunk, r);
            if (!chunk->contributions[r].landed || lower.first > at || lower.first + lower.n <= at) continue;
            at = lower.first + lower.n;
            moved = true;
        }
    }
    for (uint32_t r = 0; r < rank; r++) {
        pd_range lower = pd_round_chunk_range(round, chunk, r);
        if (chunk->contributions[r].landed && lower.first > at && lower.first < stop) stop = lower.first;
    }
    return (pd_range){ at, at < stop ? stop - at : 0 };
}

/* Returns whether initial weights of all elements of a chunk have come. */
static bool is_covered(const pd_round *round, const pd_chunk *chunk)
{
    return free_run(round, chunk, pd_round_ranks(round), chunk->first, chunk->first + chunk->n).n == 0;
}

/* Notes that the initial weights that the rank owes of a chunk have come, or that they count no more. */
static void set_landed(pd_param *param, pd_chunk *chunk, uint32_t rank, bool landed)
{
    bool counted = param->round.together && param->ranged, covered;

    if (chunk->contributions[rank].landed == landed) return;
    covered = counted && is_covered(&param->round, chunk);
    chunk->contributions[rank].landed = landed;
    if (counted && is_covered(&param->round, chunk) == covered) return;
    if (landed)
        param->unlanded--;
    else
        param->unlanded++;
}

void pd_init_forget(pd_param *param, uint32_t rank)
{
    for (uint32_t c = 0; param->current == NULL && c < param->round.n_chunks; c++)
        set_landed(param, &param->round.chunks[c], rank, false);
}

static void note_initialiser(const pd_job *job, pd_param *param, uint32_t rank)
{
    uint64_t *initialiser = param->ranged ? &param->round.ranges.at[rank].initialiser : &param->saved.initialiser,
             nonce = job->ranks[rank].saved.nonce;

    /* The weights that an earlier process sent are discarded: the present process sends all of them again. */
    for (uint32_t c = 0; *initialiser != nonce && !PD_MUTANT(init_mixed) && c < param->round.n_chunks; c++)
        set_landed(param, &param->round.chunks[c], rank, false);
    *initialiser = nonce;
}

static void land(pd_job *job, const pd_piece *piece, uint32_t rank)
{
    pd_param *param = &job->steps.params[piece->param];
    pd_chunk *chunk;
    int64_t end = piece->first + piece->count;
    pd_range run;

    if (is_repeated(param) || is_unasked(job, param, rank) || piece->count == 0) return;
    chunk = pd_piece_chunk(param, piece);
    note_initialiser(job, param, rank);
    for (int64_t at = piece->first; (run = free_run(&param->round, chunk, rank, at, end)).n > 0; at = run.first + run.n)
        pd_convert((float *)param->next->at[PD_F32] + run.first, PD_F32,
                   (const char *)piece->at + (size_t)(run.first - piece->first) * pd_dtype_size(piece->dtype),
                   piece->dtype, run.n);
    set_landed(param, chunk, rank, true);
}

bool pd_init_publish_landed(pd_job *job, pd_param *param, pd_closed *closed)
{
    if (is_repeated(param) || param->unlanded > 0) return false;
    if (!pd_all_finite(param->next->at[PD_F32], PD_F32, param->elements))
        pd_initial_warn_not_finite(&job->steps, param, "so they came");
    pd_params_convert(&param, 1, job->steps.config->threads);
    pd_param_publish(job->steps.unread, param, param->next, (pd_outcome)0, closed);
    param->next = NULL;
    job->steps.progress.n_begun++;
    return true;
}

void pd_init_take(pd_job *job, pd_request *frame)
{
    pd_effect *closed = pd_job_new_closed(job, frame->u.data.n);
    const pd_piece *pieces = frame->u.data.pieces;
    pd_error err;
    int rc = pd_frame_may_come(job, frame, &err);

    if (rc == PD_OK) rc = check(job, frame, &err);
    if (rc == PD_OK && closed == NULL) rc = pd_job_no_memory(job, &err);
    if (rc == PD_OK) rc = make_weights(job, frame, &err);
    if (rc != PD_OK) {
        pd_effect_free(closed);
        pd_frame_refuse(job, frame, &err);
        return;
    }
    for (size_t i = 0; i < frame->u.data.n; i++) land(job, &pieces[i], frame->rank);
    for (size_t i = 0; i < frame->u.data.n; i++)
        closed->u.closed.n +=
            pd_init_publish_landed(job, &job->steps.params[pieces[i].param], &closed->u.closed.at[closed->u.closed.n]);
    pd_job_send_closed(job, closed);
    pd_answer_ok(job->steps.outbox, frame);
    pd_frame_finish(&job->steps, frame);
}

/* Lets the workers of all ranks but one come again, to send initial weights that were given up. */
static void ask_others(pd_job *job, const pd_param *param, uint32_t rank, uint64_t now_ns)
{
    pd_error err;

    pd_fail(&err, PD_UNAVAILABLE,
            "rank %u of job %.100s has another process, and the initial weights of %.160s from the earlier one were in "
            "the mean in part: all ranks send theirs again",
            rank, job->steps.name, param->name);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (r != rank) pd_rank_send_away(job, r, &err, "it is to send the initial weights again", now_ns);
}

/* Gives up what an earlier process with this rank sent of the parameter's initial weights; if some of that is summed,
 * what all ranks have sent. */
static void let_go_of_earlier(pd_job *job, pd_param *param, uint32_t rank, uint64_t now_ns)
{
    if (is_summed(param, rank)) {
        pd_contribute_give_up(&job->steps, param);
        ask_others(job, param, rank, now_ns);
        return;
    }
    for (uint32_t c = 0; c < param->round.n_chunks; c++) {
        pd_chunk *chunk = &param->round.chunks[c];
        if (pd_chunk_state(chunk, rank) != PD_CONTRIBUTION_HELD) continue;
        pd_frame_let_go(&job->steps, chunk->contributions[rank].frame);
        pd_round_take_back(&param->round, chunk, rank);
        pd_chunk_let_go(&job->steps, chunk);
    }
}

static void file_piece(pd_job *job, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_param *param = &job->steps.params[piece->param];
    pd_chunk *chunk;

    if (is_repeated(param) || piece->count == 0) return;
    if (is_taken_over(job, param, frame->rank) && !PD_MUTANT(init_mixed))
        let_go_of_earlier(job, param, frame->rank, now_ns);
    chunk = pd_piece_chunk(param, piece);
    /* Of a chunk that the rank sends twice, the first one counts. */
    if (pd_chunk_state(chunk, frame->rank) != PD_CONTRIBUTION_EMPTY) return;
    frame->u.data.buffer->refs++;
    pd_contribute(
        &job->steps, chunk, frame->rank,
        (pd_contribution){
            .u.at = piece->at, .frame = frame, .state = PD_CONTRIBUTION_HELD, .dtype = (uint8_t)piece->dtype },
        param->saved.step, now_ns);
    pd_weight_keep(job, param, piece, frame);
}

void pd_init_file(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_error err;

    if (pd_frame_may_come(job, frame, &err) != PD_OK || check(job, frame, &err) != PD_OK) {
        pd_frame_refuse(job, frame, &err);
        return;
    }
    if (frame->u.data.buffer != NULL) frame->u.data.buffer->refs = 0;
    for (size_t i = 0; i < frame->u.data.n; i++) file_piece(job, &frame->u.data.pieces[i], frame, now_ns);
    job->ranks[frame->rank].saved.initialiser = job->ranks[frame->rank].saved.nonce;
    pd_answer_ok(job->steps.outbox, frame);
    pd_frame_keep(&job->steps, frame);
}
