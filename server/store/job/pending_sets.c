/* pending_sets.c - holds commands that have set overrides, and Leaves, and answers each when it is durable. */
#include "pending_sets.h"

#include "wal.h"
#include "checkpoint_policy.h"

#include <inttypes.h>

/* Longest time that a command waits for the disk. */
static const uint64_t WAIT_NS = 10 * 1000000000ull;

/* Values of request->u.set.entry that are no number of a record. */
#define ONLY_CHECKPOINT 0    /* the command has no record: only a checkpoint can make its values durable */
#define NO_RECORD UINT64_MAX /* the command gets its record after the checkpoint that is being made */

bool pd_wal_records_decisions(const pd_job *job)
{
    return job->steps.wal != NULL && job->steps.wal->decisions.on;
}

static void answer(pd_job *job, pd_request *request)
{
    pd_effect *effect;

    if (request->kind == PD_REQ_LEAVE) {
        pd_answer_ok(job->steps.outbox, request);
        pd_request_free(request);
        return;
    }
    effect = pd_answer(request, PD_EFF_SET);
    effect->u.set = request->u.set.result;
    request->u.set.result = NULL;
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}

void pd_sets_answer(pd_job *job, pd_request *request, bool recorded, uint64_t now_ns)
{
    bool leaves = request->kind == PD_REQ_LEAVE;

    if (!recorded && !leaves) pd_checkpoint_policy_soon(job);
    if (!job->checkpointing.newest.exists || (!recorded && leaves)) {
        answer(job, request);
        return;
    }
    request->u.set.entry = !recorded                         ? ONLY_CHECKPOINT
                           : job->checkpointing.decisions.on ? job->checkpointing.decisions.number + 1
                                                             : NO_RECORD;
    request->u.set.in_head = false;
    request->u.set.until_ns = now_ns < UINT64_MAX - WAIT_NS ? now_ns + WAIT_NS : UINT64_MAX;
    pd_request_queue_add(&job->checkpointing.decisions.sets, request);
}

/* Calls `act` for each waiting command, oldest first. `act` returns true if the command must wait on, false if it has
 * answered the request. */
static void visit(pd_job *job, bool (*act)(pd_job *job, pd_request *request, uint64_t arg), uint64_t arg)
{
    pd_request_queue all = job->checkpointing.decisions.sets;

    job->checkpointing.decisions.sets = (pd_request_queue){ 0 };
    while (all.first != NULL) {
        pd_request *request = pd_request_queue_take(&all);
        if (act(job, request, arg)) pd_request_queue_add(&job->checkpointing.decisions.sets, request);
    }
}

static bool answer_written(pd_job *job, pd_request *request, uint64_t number)
{
    if (request->u.set.entry == ONLY_CHECKPOINT || request->u.set.entry > number) return true;
    answer(job, request);
    return false;
}

void pd_sets_recorded(pd_job *job, uint64_t number)
{
    visit(job, answer_written, number);
}

static bool note_head(pd_job *job, pd_request *request, uint64_t unused)
{
    (void)job, (void)unused;
    request->u.set.in_head = true;
    return true;
}

void pd_sets_copied(pd_job *job)
{
    visit(job, note_head, 0);
}

static bool answer_kept(pd_job *job, pd_request *request, uint64_t good)
{
    if (request->u.set.in_head && good != 0) {
        answer(job, request);
        return false;
    }
    request->u.set.in_head = false;
    return true;
}

void pd_sets_settle(pd_job *job, bool good)
{
    visit(job, answer_kept, good);
}

static bool give_number(pd_job *job, pd_request *request, uint64_t number)
{
    (void)job;
    if (request->u.set.entry == NO_RECORD) request->u.set.entry = number;
    return true;
}

void pd_sets_number(pd_job *job, uint64_t number)
{
    visit(job, give_number, number);
}

/* Lets a request wait for a checkpoint instead of a record, or answers a Leave. */
static bool wait_for_checkpoint(pd_job *job, pd_request *request)
{
    request->u.set.entry = ONLY_CHECKPOINT;
    if (request->kind != PD_REQ_LEAVE) return true;
    answer(job, request);
    return false;
}

static bool lose_record(pd_job *job, pd_request *request, uint64_t number)
{
    return request->u.set.entry <= number || wait_for_checkpoint(job, request);
}

void pd_sets_lost(pd_job *job, uint64_t number)
{
    visit(job, lose_record, number);
}

static bool lose_record_of(pd_job *job, pd_request *request, uint64_t number)
{
    return request->u.set.entry != number || wait_for_checkpoint(job, request);
}

void pd_sets_lost_record(pd_job *job, uint64_t number)
{
    visit(job, lose_record_of, number);
}

void pd_sets_move(pd_job *to, pd_job *from)
{
    to->checkpointing.decisions.sets = from->checkpointing.decisions.sets;
    from->checkpointing.decisions.sets = (pd_request_queue){ 0 };
    pd_sets_lost(to, ONLY_CHECKPOINT);
}

static bool let_leave(pd_job *job, pd_request *request, uint64_t unused)
{
    (void)unused;
    if (request->kind != PD_REQ_LEAVE) return true;
    answer(job, request);
    return false;
}

void pd_sets_refuse_all(pd_job *job, const pd_error *err)
{
    visit(job, let_leave, 0);
    pd_request_queue_refuse(&job->checkpointing.decisions.sets, job->steps.outbox, err);
}

uint64_t pd_sets_next_tick(const pd_job *job)
{
    const pd_request *oldest = job->checkpointing.decisions.sets.first;

    return oldest != NULL ? oldest->u.set.until_ns : UINT64_MAX;
}

static bool refuse_late(pd_job *job, pd_request *request, uint64_t now_ns)
{
    const pd_set_change *change;
    pd_error err;

    if (now_ns < request->u.set.until_ns) return true;
    if (!let_leave(job, request, 0)) return false;
    change = request->u.set.result->n > 0 ? &request->u.set.result->at[0] : NULL;
    pd_fail(&err, PD_DEADLINE_EXCEEDED,
            "job %.100s: the values hold from step %" PRIu64
            " on, but were not written for 10 s, so they are lost if the server stops before the next checkpoint: look "
            "at the disk, then call `paramctl checkpoint %.256s`%s%.200s",
            job->steps.name, change != NULL ? change->from_least : 0, job->steps.name,
            job->checkpointing.error[0] != '\0' ? ". It said: " : "", job->checkpointing.error);
    pd_request_refuse(job->steps.outbox, request, &err);
    return false;
}

void pd_sets_tick(pd_job *job, uint64_t now_ns)
{
    if (now_ns >= pd_sets_next_tick(job)) visit(job, refuse_late, now_ns);
}
