/* settling.c - gives workers the tallies of this shard, and takes the verdicts that they bring. */
#include "settling.h"

#include "ranks.h"
#include "decide.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Answers a request with a tally; with none, if `tally` is NULL. */
static void answer(pd_job *job, pd_request *request, const pd_tally_view *tally, uint64_t step, uint32_t phase)
{
    uint8_t *copy = tally != NULL ? malloc(tally->n) : NULL;
    pd_effect *effect;
    pd_error err;

    if (tally != NULL && copy == NULL) {
        pd_job_no_memory(job, &err);
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    if (tally != NULL) memcpy(copy, tally->at, tally->n);
    effect = pd_answer(request, PD_EFF_SETTLED);
    effect->u.settled.step = step;
    effect->u.settled.phase = phase;
    effect->u.settled.at = copy;
    effect->u.settled.bytes = tally != NULL ? tally->n : 0;
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}

/* Answers a request for a tally, unless the tally is not made yet. Returns whether it was answered. */
static bool give_tally(pd_job *job, pd_request *request)
{
    pd_tally_view tally;
    uint64_t step;
    uint32_t phase;
    pd_error err;

    switch (pd_settle_find(job->steps.together.settle, request->u.settle.step, request->u.settle.phase, &tally, &step,
                           &phase)) {
    case PD_OK: answer(job, request, &tally, step, phase); return true;
    case PD_UNAVAILABLE: return false;
    default:
        pd_fail(&err, PD_NOT_FOUND,
                "job %.100s: the tally of step %" PRIu64 ", phase %u, is not kept any more: only those of the last %d "
                "steps are; go back to a checkpoint that all shards have",
                job->steps.name, request->u.settle.step, request->u.settle.phase, PD_SETTLE_STEPS);
        pd_request_refuse(job->steps.outbox, request, &err);
        return true;
    }
}

/* Takes a verdict, unless it is early. Returns whether the request was answered. */
static bool take_verdict(pd_job *job, pd_request *request)
{
    uint64_t step = request->u.settle.step;
    pd_verdict_state state;
    pd_error err;

    if (pd_steps_take_verdict(&job->steps, &request->u.settle, &state, &err) != PD_OK) {
        pd_say(job->steps.outbox, PD_SAY_WARNING,
               (pd_log_facts){ .job = job->steps.name, .rank = &request->rank, .step = &step, .code = err.code },
               "%.300s", err.text);
        pd_request_refuse(job->steps.outbox, request, &err);
        return true;
    }
    if (state == PD_VERDICT_EARLY) return false;
    answer(job, request, NULL, step, request->u.settle.phase);
    return true;
}

static bool handle(pd_job *job, pd_request *request)
{
    return request->u.settle.n > 0 ? take_verdict(job, request) : give_tally(job, request);
}

/* Returns where the rank keeps a waiting request of this kind. */
static pd_request **slot_of(pd_rank *rank, const pd_request *request)
{
    return request->u.settle.n > 0 ? &rank->brings_verdict : &rank->asks_tally;
}

static int check(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_rank *rank = pd_rank_speaker(job, request, err);
    const pd_request *other = rank != NULL ? *slot_of(rank, request) : NULL;

    if (rank == NULL) return err->code;
    if (job->steps.n_params == 0 || job->steps.together.settle == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s: its steps need no Settle (DeclareReply.settles)",
                       job->steps.name);
    if (request->u.settle.step == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Settle: expected a step from 1 on, got 0");
    if (other != NULL && other->ticket.conn == request->ticket.conn && request->u.settle.n > 0)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "rank %u of job %.100s has another verdict under way, of step %" PRIu64 ": wait for its answer",
                       request->rank, job->steps.name, other->u.settle.step);
    return PD_OK;
}

/* Ends an earlier request of the same kind: of a connection that has ended, or an ask that the worker replaces, since
 * it needs an earlier tally. */
static void replace(pd_job *job, pd_request **slot, const pd_request *by)
{
    pd_request *request = *slot;
    pd_error err;

    *slot = NULL;
    if (request == NULL || request->ticket.conn != by->ticket.conn) {
        pd_request_free(request);
        return;
    }
    pd_fail(&err, PD_CANCELLED, "rank %u of job %.100s has asked anew, for the tally of step %" PRIu64, by->rank,
            job->steps.name, by->u.settle.step);
    pd_request_refuse(job->steps.outbox, request, &err);
}

void pd_job_settle(pd_job *job, pd_request *request)
{
    pd_request **slot;
    pd_error err;

    if (check(job, request, &err) != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    slot = slot_of(&job->ranks[request->rank], request);
    replace(job, slot, request);
    if (!handle(job, request)) *slot = request;
}

/* Handles a request that waits. One that is still early was checked when it came: a verdict has many bytes, and there
 * may be one of each rank. */
static void look(pd_job *job, pd_request **slot)
{
    pd_request *request = *slot;

    if (request == NULL ||
        pd_settle_is_early(job->steps.together.settle, request->u.settle.step, request->u.settle.phase))
        return;
    *slot = NULL;
    if (!handle(job, request)) *slot = request;
}

void pd_settling_look(pd_job *job, uint64_t now_ns)
{
    while (pd_settle_has_news(&job->steps)) {
        pd_settle_told(&job->steps, now_ns);
        for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
            look(job, &job->ranks[r].asks_tally);
            look(job, &job->ranks[r].brings_verdict);
        }
    }
}

void pd_settling_refuse(pd_job *job, const pd_error *err)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_rank *rank = &job->ranks[r];
        if (rank->asks_tally != NULL) pd_request_refuse(job->steps.outbox, rank->asks_tally, err);
        if (rank->brings_verdict != NULL) pd_request_refuse(job->steps.outbox, rank->brings_verdict, err);
        rank->asks_tally = rank->brings_verdict = NULL;
    }
}
