/* replacement.c - takes weights that the training program has changed outside the optimizer (pd_client_replace) from
 * the job's leader, and publishes them. Checks that the pushes of all ranks have the same number of the change. */
#include "replacement.h"

#include "convert.h"
#include "consistent_cut.h"
#include "data_frame.h"
#include "fragment_ranks.h"
#include "membership.h"
#include "mutant.h"

#include <stdio.h>
#include <stdlib.h>

/* Returns whether the rank has contributed to the parameter's open round, or has reported that it has no gradient. */
static bool has_begun(const pd_param *param, uint32_t rank)
{
    return pd_round_count_chunks(&param->round, rank) > 0 && !pd_round_is_silent(&param->round, rank);
}

/* Checks that the step after the parameter's last one has not begun: the rank, which replaces its weights, has not
 * contributed to it, and it is not taken without this rank, in a job whose sets are open. */
static int check_not_begun(const pd_param *param, uint32_t rank, pd_error *err)
{
    bool by_rank = has_begun(param, rank);
    char who[24] = "the job";

    if (!by_rank && param->stage < PD_READY && !param->round.fixed) return PD_OK;
    if (by_rank) snprintf(who, sizeof who, "rank %u", rank);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "%.160s: %s has begun step %llu: weights can be replaced between two steps", param->name, who,
                   (unsigned long long)param->saved.step + 1);
}

static int check_param(const pd_job *job, const pd_param *param, const pd_request *frame, bool changes, pd_error *err)
{
    unsigned long long step = frame->u.data.step, present = param->saved.step;

    if (param->current == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s has no weights to replace yet", param->name);
    if (param->ranged && changes)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: its elements are spread over the ranks, and such weights cannot be replaced while the "
                       "job runs: begin a new job with the changed weights",
                       param->name);
    if (step != present)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: replacement weights are for step %llu, but it has closed step %llu", param->name, step,
                       present);
    if (job->drain_step <= step)
        return pd_fail(err, PD_UNAVAILABLE, "%.160s: the server is draining and accepts no weights", param->name);
    return check_not_begun(param, frame->rank, err);
}

static int check_piece(const pd_job *job, const pd_piece *piece, const pd_request *frame, uint64_t number,
                       pd_error *err)
{
    pd_param *param = pd_piece_param(job, piece, err);
    int rc;

    if (param == NULL) return PD_INVALID_ARGUMENT;
    if ((rc = check_param(job, param, frame, !piece->absent, err)) != PD_OK) return rc;
    if (!piece->absent && (rc = pd_piece_check(param, piece, frame, err)) != PD_OK) return rc;
    return pd_piece_check_once(param, piece, number, err);
}

/* Returns whether the parameter's next step is taken with the weights that are being replaced: weights of its fragment,
 * of its last step. */
static bool is_concerned(const pd_param *param)
{
    return param->fragment->changing == param->saved.step + 1;
}

/* Checks that the fragments whose weights are replaced are between two steps, and that no other rank has pushed with
 * another change of the weights, or without it. PD_FAILED_PRECONDITION. */
static int check_rounds(const pd_job *job, const pd_request *frame, pd_error *err)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        const pd_change_told *told = &param->change.told;
        unsigned long long step = param->saved.step + 1;

        if (!is_concerned(param)) continue;
        if (check_not_begun(param, frame->rank, err) != PD_OK) return PD_FAILED_PRECONDITION;
        if (!told->known || told->number == frame->u.data.replaces ||
            told->process != job->ranks[told->rank].saved.process)
            continue;
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "rank %u replaces weights before step %llu, and rank %u has pushed %.160s for it with other weights: "
            "weights were changed by hand on some ranks only, or differently: change them on all ranks alike",
            frame->rank, step, told->rank, param->name);
    }
    return PD_OK;
}

/* Checks that the job's leader sends the weights. */
static int check_sender(const pd_job *job, const pd_request *frame, pd_error *err)
{
    uint32_t leader = pd_members_leader(job);
    char who[48] = "no rank is there that may send them now";

    if (frame->rank == leader) return PD_OK;
    if (leader < PD_MAX_WORLD) snprintf(who, sizeof who, "rank %u sends them", leader);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "rank %u sends weights that were changed by hand: %s, and the other ranks give the number of the "
                   "change with their pushes",
                   frame->rank, who);
}

static int check(pd_job *job, const pd_request *frame, pd_error *err)
{
    uint64_t number = ++job->counts.frames;
    int rc = pd_frame_may_come(job, frame, err);

    if (rc == PD_OK) rc = check_sender(job, frame, err);
    for (size_t i = 0; rc == PD_OK && i < frame->u.data.n; i++)
        rc = check_piece(job, &frame->u.data.pieces[i], frame, number, err);
    return rc;
}

/* Returns whether replacement weights of the parameter are staged, in `next`. A step uses `next` only from PD_READY
 * on. */
static bool is_staged(const pd_param *param)
{
    return param->current != NULL && param->next != NULL && param->stage < PD_READY;
}

static void unstage(pd_param *param)
{
    pd_published_unref(param->next);
    param->next = NULL;
    param->unlanded = 0;
}

static void end_replacing(pd_job *job)
{
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        job->steps.fragments[f].changing = job->steps.fragments[f].n_changing = 0;
    job->replacing = (pd_replacing){ 0 };
}

static void drop(pd_job *job)
{
    if (job->replacing.number == 0) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (is_staged(&job->steps.params[i])) unstage(&job->steps.params[i]);
    end_replacing(job);
}

/* Notes that weights of this step of the fragment are replaced. Drops those for an earlier step, if the step that has
 * been taken since has not dropped them. */
static void begin_fragment(pd_job *job, pd_fragment *fragment, uint64_t step)
{
    if (fragment->changing == step + 1) return;
    for (uint32_t i = 0; fragment->changing > 0 && i < job->steps.n_params; i++)
        if (job->steps.params[i].fragment == fragment && is_staged(&job->steps.params[i]))
            unstage(&job->steps.params[i]);
    job->replacing.whole -= fragment->n_changing;
    fragment->changing = step + 1;
    fragment->n_changing = 0;
}

void pd_replace_drop_of(pd_job *job, uint32_t rank)
{
    if (rank == job->replacing.rank) drop(job);
}

/* Adds the parameter to the number of those whose staged weights have all come, if they have. */
static void count_whole(pd_job *job, const pd_param *param)
{
    job->replacing.whole += param->unlanded == 0;
    param->fragment->n_changing += param->unlanded == 0;
}

static int begin_to_stage(pd_job *job, pd_param *param, uint32_t rank, pd_error *err)
{
    uint64_t unread = pd_unread_stops(job->steps.unread);

    if (param->next != NULL) return PD_OK;
    if (unread > 0)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%.160s: answers that workers have not read hold %llu bytes of earlier weights, and there is no "
                       "room for more: try again later",
                       param->name, (unsigned long long)unread);
    if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its weights", param->name);
    param->next->job = job->steps.number;
    param->next->param = param->index;
    param->next->version = param->saved.step;
    param->unlanded = param->round.n_chunks;
    for (uint32_t c = 0; c < param->round.n_chunks; c++) param->round.chunks[c].contributions[rank].landed = false;
    count_whole(job, param);
    return PD_OK;
}

/* Restores elements that the worker has not changed. The worker's weights `given` have 16 bits, the published weights
 * `masters` have 32. An element of `masters` that rounds to the element of `given` is copied into `to`, which otherwise
 * has the given value. */
static void keep_masters(float *to, const float *masters, const uint16_t *given, pd_dtype dtype, int64_t n)
{
    enum { SOME = 1024 };
    uint16_t rounded[SOME];

    for (int64_t i = 0; i < n; i += SOME) {
        int64_t some = n - i < SOME ? n - i : SOME;
        pd_convert(rounded, dtype, masters + i, PD_F32, some);
        for (int64_t j = 0; j < some; j++)
            if (rounded[j] == given[i + j]) to[i + j] = masters[i + j];
    }
}

static void stage(pd_job *job, const pd_piece *piece, uint32_t rank)
{
    pd_param *param = &job->steps.params[piece->param];
    pd_contribution *given;
    float *to;

    if (piece->count == 0) return;
    given = &pd_piece_chunk(param, piece)->contributions[rank];
    to = (float *)param->next->at[PD_F32] + piece->first;
    pd_convert(to, PD_F32, piece->at, piece->dtype, piece->count);
    if (piece->dtype != PD_F32)
        keep_masters(to, (const float *)param->current->at[PD_F32] + piece->first, piece->at, piece->dtype,
                     piece->count);
    if (given->landed) return;
    given->landed = true;
    param->unlanded--;
    count_whole(job, param);
}

static int stage_all(pd_job *job, const pd_request *frame, pd_error *err)
{
    pd_replacing *replacing = &job->replacing, coming = { .number = frame->u.data.replaces,
                                                          .rank = frame->rank,
                                                          .nonce = job->ranks[frame->rank].saved.nonce,
                                                          .whole = replacing->whole };

    if (replacing->number != coming.number || replacing->nonce != coming.nonce) {
        drop(job);
        coming.whole = 0;
    }
    *replacing = coming;
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        pd_param *param = &job->steps.params[piece->param];
        int rc;
        begin_fragment(job, param->fragment, frame->u.data.step);
        if (!piece->absent && (rc = begin_to_stage(job, param, frame->rank, err)) != PD_OK) return rc;
    }
    for (size_t i = 0; i < frame->u.data.n; i++) stage(job, &frame->u.data.pieces[i], frame->rank);
    return PD_OK;
}

static void note_change(pd_param *param, const pd_replacing *replacing)
{
    param->change.number = replacing->number;
    param->change.rank = replacing->rank;
}

static void publish(pd_job *job, pd_effect *effect)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        if (is_concerned(param)) note_change(param, &job->replacing);
        if (!is_staged(param)) continue;
        pd_params_convert(&param, 1, job->steps.config->threads);
        pd_param_publish(job->steps.unread, param, param->next, (pd_outcome)0,
                         &effect->u.closed.at[effect->u.closed.n++]);
        param->next = NULL;
        pd_cut_replaced(&job->steps, param);
    }
    end_replacing(job);
    job->checkpointing.steps.moved = "weights are replaced";
    if (!PD_MUTANT(change_not_counted)) job->checkpointing.changes++;
    pd_job_send_closed(job, effect);
}

/* Checks that no staged weights were dropped because the job has taken a step without the rank that sends them. */
static int check_staged(const pd_job *job, const pd_request *frame, pd_error *err)
{
    uint32_t staged = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++) staged += is_staged(&job->steps.params[i]);
    if (staged == job->replacing.whole) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "the job has begun step %llu before all weights that replace those of step %llu had come",
                   (unsigned long long)frame->u.data.step + 1, (unsigned long long)frame->u.data.step);
}

/* Publishes all staged weights. PD_FAILED_PRECONDITION, PD_NO_MEMORY: nothing is published. */
static int publish_all(pd_job *job, const pd_request *frame, pd_error *err)
{
    pd_effect *effect;
    int rc = check_rounds(job, frame, err);

    if (rc == PD_OK) rc = check_staged(job, frame, err);
    if (rc != PD_OK) return rc;
    if ((effect = pd_job_new_closed(job, job->replacing.whole)) == NULL) return pd_job_no_memory(job, err);
    publish(job, effect);
    return PD_OK;
}

void pd_replace_take(pd_job *job, pd_request *frame)
{
    pd_error err;
    int rc = check(job, frame, &err);

    if (rc == PD_OK) rc = stage_all(job, frame, &err);
    if (rc == PD_OK && job->replacing.whole == frame->u.data.whole) rc = publish_all(job, frame, &err);
    if (rc != PD_OK) {
        pd_replace_drop_of(job, frame->rank);
        pd_frame_refuse(job, frame, &err);
        return;
    }
    pd_answer_ok(job->steps.outbox, frame);
    pd_frame_finish(&job->steps, frame);
}

static int differs(const pd_param *param, uint32_t rank, uint32_t other, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "rank %u pushes %.160s for step %llu with other weights than rank %u: weights were changed by hand "
                   "on some ranks only, or differently: change them on all ranks alike",
                   rank, param->name, (unsigned long long)param->saved.step + 1, other);
}

/* Returns whether the rank that pushes is the job's leader, and the push is for the parameter's next step: it must have
 * sent what it pushes with. An older push is of weights from before a change. */
static bool leads(const pd_job *job, const pd_param *param, const pd_request *push)
{
    return push->rank == pd_members_leader(job) && push->u.data.step == param->saved.step + 1;
}

int pd_replace_check_push(const pd_job *job, const pd_param *param, const pd_request *push, pd_error *err)
{
    const pd_change_told *told = &param->change.told;
    uint64_t number = push->u.data.replaces;

    if (param->change.number != 0 && number != param->change.number &&
        (!param->round.together || leads(job, param, push)))
        return differs(param, push->rank, param->change.rank, err);
    if (leads(job, param, push) && number != param->change.number)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "rank %u pushes %.160s for step %llu with weights that were changed by hand, and has not sent "
                       "them: send them first (pd_client_replace)",
                       push->rank, param->name, (unsigned long long)param->saved.step + 1);
    /* What a rank's earlier process has reported does not bind the rank's later processes. */
    if (told->known && number != told->number && told->process == job->ranks[told->rank].saved.process)
        return differs(param, push->rank, told->rank, err);
    return PD_OK;
}

void pd_replace_note_push(const pd_job *job, pd_param *param, const pd_request *push)
{
    pd_change_told *told = &param->change.told;

    if (param->round.together || (told->known && told->process == job->ranks[told->rank].saved.process)) return;
    *told = (pd_change_told){ .known = true,
                              .rank = push->rank,
                              .process = job->ranks[push->rank].saved.process,
                              .number = push->u.data.replaces };
}
