/* drain.c - drains the server before it stops: rounds under way are finished, and no new ones begin. */
#include "drain.h"

#include "global_clip.h"
#include "checkpoint_policy.h"
#include "step_group.h"
#include "wal.h"

/* Returns whether the parameter's open round will close without any further request: all contributions to it have
 * come, and it waits for no other parameter. */
static bool closes_by_itself(const pd_steps *steps, const pd_param *param)
{
    return param->round.open && pd_round_is_complete(&param->round) && param->stage != PD_HELD &&
           (param->stage != PD_STOPPED || (!pd_steps_are_paused(steps) && pd_wal_awaited(steps, param) == NULL));
}

/* Returns a parameter whose open round can still close; NULL: there is none. A round that waits for ranks can close
 * only while a worker is connected, because without workers no contribution comes. While the global clip is computed
 * for a step, the rounds of this step can close, too. */
static const pd_param *find_open(const pd_job *job)
{
    bool somebody = job->timers.linger_ns == 0;

    if (job->steps.queue.n_open == 0) return NULL;
    if (job->steps.queue.waiting != NULL && (somebody || pd_global_clip_runs(&job->steps)))
        return job->steps.queue.waiting;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (closes_by_itself(&job->steps, &job->steps.params[i])) return &job->steps.params[i];
    return NULL;
}

static bool is_open(const pd_job *job)
{
    return job->waiting.inbox.first != NULL || find_open(job) != NULL;
}

/* Finds a job for which is(job) is true. Checks job *number first, and stores the number of the job found there.
 * Returns NULL if there is none. */
static const pd_job *find_job(const pd_jobs *jobs, uint32_t *number, bool (*is)(const pd_job *job))
{
    const pd_job *job = pd_jobs_numbered(jobs, *number), *next;

    if (job != NULL && !job->gone && is(job)) return job;
    HASH_ITER(hh, jobs->names, job, next)
    {
        if (!is(job)) continue;
        *number = job->steps.number;
        return job;
    }
    return NULL;
}

/* Returns a job whose open rounds or waiting frames the drain must wait for; NULL: there is none. */
static const pd_job *find_open_job(pd_drain *drain, const pd_jobs *jobs)
{
    return find_job(jobs, &drain->open, is_open);
}

/* Writes the error for a drain that has reached its deadline: which round is still open, and which ranks it waits
 * for. */
static void describe(const pd_job *job, pd_error *err)
{
    const pd_param *open = find_open(job),
                   *late = open != NULL && open->stage == PD_HELD ? pd_param_awaited(&job->steps, open) : open;
    char what[48], ranks[160];

    if (late == NULL) {
        pd_fail(err, PD_DEADLINE_EXCEEDED, "not drained: pushes of job %.100s are still being checked",
                job->steps.name);
        return;
    }
    pd_round_text(late, what, sizeof what);
    pd_round_missing(&late->round, ranks, sizeof ranks);
    if (pd_round_is_complete(&late->round))
        pd_fail(err, PD_DEADLINE_EXCEEDED, "not drained: job %.100s: %s of %.160s is still under way", job->steps.name,
                what, late->name);
    else
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "not drained: job %.100s: %s of %.160s still misses %s%s; contributions so far are kept, drain again "
                "to keep waiting",
                job->steps.name, what, late->name, late->round.open ? "rank " : "every rank", ranks);
}

/* Returns a job that would lose steps if the server stopped now, because its last checkpoint has failed or is not on
 * the disk in time. NULL: there is none. */
static const pd_job *find_lost(const pd_jobs *jobs)
{
    const pd_job *job, *next;

    HASH_ITER(hh, jobs->names, job, next)
    if (pd_checkpoint_policy_loses(job) &&
        (job->checkpointing.last.state == PD_LAST_WANTED || job->checkpointing.error[0] != '\0'))
        return job;
    return NULL;
}

/* Writes the error for a drain after which the server would lose steps. */
static void describe_lost(const pd_job *job, pd_error *err)
{
    const char *why = job->checkpointing.error[0] != '\0' ? job->checkpointing.error : "it is not on the disk yet";

    pd_fail(err, PD_ABORTED,
            "drained, but the last checkpoint of job %.100s has failed: %.200s. Steps after step %llu are lost when "
            "the server stops: free space or repair the disk, and call `paramctl checkpoint` or drain again before",
            job->steps.name, why,
            (unsigned long long)(job->checkpointing.newest.exists ? job->checkpointing.durable_step : 0));
}

static void answer(pd_effects *outbox, pd_request *request, const pd_job *open, const pd_job *lost)
{
    pd_error err;

    if (lost != NULL)
        describe_lost(lost, &err);
    else if (open != NULL)
        describe(open, &err);
    if (lost != NULL || open != NULL)
        pd_answer_error(outbox, request, &err);
    else
        pd_answer_ok(outbox, request);
    pd_request_free(request);
}

/* Returns whether the job's last checkpoint is neither on the disk nor has failed. */
static bool awaits_checkpoint(const pd_job *job)
{
    return job->checkpointing.durable && job->checkpointing.last.state == PD_LAST_WANTED;
}

static bool is_late(const pd_drain *drain, uint64_t now_ns)
{
    for (const pd_request *request = drain->waiting.first; request != NULL; request = pd_request_next(request))
        if (now_ns >= request->u.drain.deadline_ns) return true;
    return false;
}

static uint64_t longest_wait(const pd_drain *drain)
{
    uint64_t most = 0;

    for (const pd_request *request = drain->waiting.first; request != NULL; request = pd_request_next(request))
        if (request->u.drain.keep_ns > most) most = request->u.drain.keep_ns;
    return most;
}

bool pd_drain_keep(pd_drain *drain, const pd_jobs *jobs, uint64_t now_ns)
{
    pd_job *job, *next;

    if (drain->waiting.first == NULL || drain->last_until_ns > 0) return false;
    if (find_open_job(drain, jobs) != NULL && !is_late(drain, now_ns)) return false;
    drain->last_ns = longest_wait(drain);
    drain->last_until_ns = now_ns + drain->last_ns;
    HASH_ITER(hh, jobs->names, job, next)
    if (job->checkpointing.durable) job->checkpointing.last.state = PD_LAST_WANTED;
    return true;
}

/* Returns whether answers must wait for last checkpoints of jobs. */
static bool waits_for_checkpoints(pd_drain *drain, const pd_jobs *jobs, uint64_t now_ns)
{
    return drain->last_until_ns > 0 && now_ns < drain->last_until_ns &&
           find_job(jobs, &drain->unkept, awaits_checkpoint) != NULL;
}

/* Logs which jobs' last checkpoints have not come to the disk in time. */
static void say_late_checkpoints(const pd_drain *drain, const pd_jobs *jobs)
{
    const pd_job *job, *next;
    pd_error why;

    pd_fail(&why, PD_DEADLINE_EXCEEDED, "it was not on the disk within %.3g s", (double)drain->last_ns / 1e9);
    HASH_ITER(hh, jobs->names, job, next)
    if (awaits_checkpoint(job)) pd_checkpoint_policy_say_lost(job, &why);
}

void pd_drain_answer(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns)
{
    const pd_job *open = drain->waiting.first != NULL ? find_open_job(drain, jobs) : NULL, *lost;
    pd_request_queue all;
    pd_request *request;

    if (drain->waiting.first == NULL || waits_for_checkpoints(drain, jobs, now_ns)) return;
    if (drain->last_until_ns > 0) say_late_checkpoints(drain, jobs);
    drain->last_until_ns = 0;
    lost = find_lost(jobs);
    all = pd_request_queue_take_all(&drain->waiting);
    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (open != NULL && now_ns < request->u.drain.deadline_ns)
            pd_request_queue_add(&drain->waiting, request);
        else
            answer(outbox, request, open, lost);
    }
}

/* Returns the highest step that any parameter of the job has closed, or has an open round for. While the server
 * drains, the other parameters may still close their rounds up to that step. */
static uint64_t furthest_step(const pd_job *job)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        uint64_t reached = job->steps.params[i].saved.step +
                           (job->steps.params[i].round.open && job->steps.params[i].current != NULL ? 1 : 0);
        if (reached > step) step = reached;
    }
    return step;
}

void pd_drain_take(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, pd_request *request, uint64_t now_ns)
{
    pd_job *job, *next;
    uint64_t *deadline_ns = &request->u.drain.deadline_ns;

    if (__builtin_add_overflow(now_ns, *deadline_ns, deadline_ns)) *deadline_ns = UINT64_MAX;
    if (!drain->draining) {
        HASH_ITER(hh, jobs->names, job, next) job->drain_step = furthest_step(job);
        pd_say(outbox, PD_SAY_INFO, (pd_log_facts){ 0 }, "draining: rounds under way are finished, no new ones begin");
    }
    drain->draining = true;
    pd_request_queue_add(&drain->waiting, request);
}

uint64_t pd_drain_next_tick(const pd_drain *drain)
{
    uint64_t at = UINT64_MAX;

    if (drain->last_until_ns > 0) return drain->last_until_ns;
    for (const pd_request *request = drain->waiting.first; request != NULL; request = pd_request_next(request))
        if (request->u.drain.deadline_ns < at) at = request->u.drain.deadline_ns;
    return at;
}

void pd_drain_free(pd_drain *drain)
{
    for (pd_request *request; (request = pd_request_queue_take(&drain->waiting)) != NULL;) pd_request_free(request);
}
