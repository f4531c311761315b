/* checkpoint_state.c - answers requests for a checkpoint, schedules retries by time, and pauses and resumes jobs. */
#include "checkpoint_state.h"

#include "checkpoint_policy.h"
#include "consistent_cut.h"
#include "import.h"
#include "riders.h"
#include "wal.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the step with which a request for a checkpoint can be answered: an operator gets that of the newest
 * checkpoint, by which its directory is named, a worker gets the durable step. */
static uint64_t step_for(const pd_job *job, const pd_request *request)
{
    return request->u.checkpoint.job_name != NULL ? job->checkpointing.newest.step : job->checkpointing.durable_step;
}

void pd_checkpoint_answer(pd_job *job, pd_request *request, uint64_t bytes, uint64_t ns)
{
    pd_effect *effect;

    if (request->u.checkpoint.imports) {
        pd_answer_ok(job->steps.outbox, request);
        pd_request_free(request);
        return;
    }
    effect = pd_answer(request, PD_EFF_CHECKPOINT);
    effect->job = job->steps.number;
    effect->u.checkpoint.step = step_for(job, request);
    effect->u.checkpoint.bytes = bytes;
    effect->u.checkpoint.ns = ns;
    effect->u.checkpoint.unbroken = pd_checkpoint_policy_unbroken(job);
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}

void pd_checkpoint_refuse(pd_job *job, pd_request *request, const pd_error *err)
{
    pd_error why;

    pd_fail(&why, err->code,
            "the state is in the job, but not on the disk: if the server is restarted now, give it to the job again: "
            "%.300s",
            err->text);
    pd_request_refuse(job->steps.outbox, request, request->u.checkpoint.imports ? &why : err);
}

bool pd_checkpoint_suffices(const pd_job *job, const pd_request *request)
{
    return step_for(job, request) >= request->u.checkpoint.step &&
           request->u.checkpoint.changes <= job->checkpointing.newest.changes;
}

void pd_checkpoint_answer_all(pd_job *job, uint64_t bytes, uint64_t ns)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.asked);
    pd_request *request;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (pd_checkpoint_suffices(job, request))
            pd_checkpoint_answer(job, request, bytes, ns);
        else
            pd_request_queue_add(&job->checkpointing.asked, request);
    }
}

/* Refuses the requests that wait for a checkpoint of step `step` or of an earlier one. */
static void refuse_all(pd_job *job, uint64_t step, const pd_error *err)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.asked);
    pd_request *request;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (request->u.checkpoint.step > step)
            pd_request_queue_add(&job->checkpointing.asked, request);
        else
            pd_checkpoint_refuse(job, request, err);
    }
}

void pd_checkpoint_answer_workers(pd_job *job)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.asked);
    pd_request *request;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (request->u.checkpoint.job_name == NULL && pd_checkpoint_suffices(job, request))
            pd_checkpoint_answer(job, request, 0, 0);
        else
            pd_request_queue_add(&job->checkpointing.asked, request);
    }
}

void pd_checkpoint_ended(pd_job *job)
{
    if (job->checkpointing.last.begun && job->checkpointing.last.state == PD_LAST_WANTED)
        job->checkpointing.last.state = PD_LAST_DONE;
    job->checkpointing.last.begun = false;
}

void pd_checkpoint_failed(pd_job *job, uint64_t step, const pd_error *err)
{
    job->checkpointing.counts.failed++;
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    pd_checkpoint_ended(job);
    refuse_all(job, step, err);
}

/* Time (ns) between two attempts to make a checkpoint: the first one, and the largest one. */
static const uint64_t FIRST_NS = 1000000000, MOST_NS = 60 * 1000000000ull;

/* Returns whether the job will not close a step that makes a checkpoint due: no worker is connected, or the server
 * drains and has tried the job's last checkpoint. */
static bool is_idle(const pd_job *job)
{
    return job->connected == 0 || job->checkpointing.last.state == PD_LAST_DONE;
}

bool pd_retry_is_by_time(const pd_job *job)
{
    return job->checkpointing.paused || pd_wal_lacks_leases(&job->steps) ||
           (job->checkpointing.counts.unwritten > 0 && is_idle(job));
}

bool pd_retry_wants_checkpoint(const pd_job *job, uint64_t now_ns)
{
    return pd_retry_is_by_time(job) && now_ns >= job->checkpointing.retry.at_ns;
}

void pd_retry_tried(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    /* An attempt that a step has made due does not lengthen the wait: the next attempt comes FIRST_NS after it. */
    if (checkpointing->retry.wait_ns == 0 || !pd_retry_is_by_time(job)) checkpointing->retry.wait_ns = FIRST_NS;
    checkpointing->retry.at_ns = now_ns + checkpointing->retry.wait_ns;
    checkpointing->retry.wait_ns =
        checkpointing->retry.wait_ns < MOST_NS / 2 ? 2 * checkpointing->retry.wait_ns : MOST_NS;
}

void pd_retry_end(pd_job *job)
{
    job->checkpointing.retry = (pd_checkpoint_retry){ 0 };
}

/* Returns whether a checkpoint could begin now. If it returns false, no deadline is needed: the event that makes it
 * true also calls pd_checkpoint_look. */
static bool may_try(const pd_job *job)
{
    return !job->checkpointing.writing && job->checkpointing.making == NULL && job->steps.cut == NULL &&
           !pd_import_writes(job) && !job->gone;
}

uint64_t pd_retry_next_tick(const pd_job *job)
{
    return pd_retry_is_by_time(job) && may_try(job) ? job->checkpointing.retry.at_ns : UINT64_MAX;
}

void pd_pause_begin(pd_job *job)
{
    pd_log_facts facts = { .job = job->steps.name };
    uint64_t step;

    if (job->steps.values.at[PD_JOB_KEY_ON_DISK_ERROR] != PD_DISK_PAUSE || job->checkpointing.paused) return;
    if (pd_wal_records_steps(&job->steps)) return; /* records make the steps durable, or stop the job */
    step = job->steps.queue.limit = pd_cut_least_step(&job->steps);
    job->checkpointing.paused = true;
    job->checkpointing.retry = (pd_checkpoint_retry){ .at_ns = 0, .wait_ns = FIRST_NS };
    facts.step = &step;
    pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
           "paused after step %" PRIu64 " until a checkpoint is durable (on_disk_error = pause)", step);
}

void pd_pause_end(pd_job *job)
{
    if (!job->checkpointing.paused) return;
    job->checkpointing.paused = false;
    job->steps.queue.limit = UINT64_MAX;
    pd_job_say(job, PD_SAY_INFO, "disk recovered, job resumed");
    pd_riders_release(&job->steps);
}
