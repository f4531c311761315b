/* store_state.c - ends jobs: on request, or to make room for others. */
#include "store_state.h"

#include "checkpoint.h"
#include "checkpoint_policy.h"
#include "export.h"
#include "job_turn.h"
#include "jobs.h"

#include <utlist.h>

void pd_store_unqueue(pd_store *store, pd_job *job)
{
    if (job->due.queued) DL_DELETE2(store->due, job, due.prev, due.next);
    job->due.queued = false;
}

void pd_store_forget(pd_store *store, pd_job *job)
{
    pd_store_unqueue(store, job);
    pd_deadlines_set(&store->deadlines, job, UINT64_MAX);
}

void pd_store_forget_deadlines(pd_store *store)
{
    pd_job *job, *next;

    store->unknown = true;
    if (store->deadlines == NULL) return;
    HASH_ITER(hh, store->jobs.names, job, next) pd_deadlines_set(&store->deadlines, job, UINT64_MAX);
}

/* Ends a job. `returns`: a restart must bring it back. */
static void end(pd_store *store, pd_job *job, bool returns, const pd_error *err)
{
    pd_store_forget(store, job);
    pd_jobs_drop(&store->jobs, job);
    pd_say(&store->outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .code = err->code }, "%.300s",
           err->text);
    pd_checkpoint_release(job, err);
    pd_job_release(job, err);
    if (!returns) pd_checkpoint_policy_end(job);
    pd_jobs_free_gone(&store->jobs, job);
}

void pd_store_end(pd_store *store, pd_job *job, const pd_error *err)
{
    end(store, job, false, err);
}

void pd_store_fail(pd_store *store, pd_job *job, const pd_error *err)
{
    end(store, job, true, err);
}

void pd_store_end_all(pd_store *store, const pd_error *err)
{
    pd_job *job, *next;

    HASH_ITER(hh, store->jobs.names, job, next) end(store, job, true, err);
    pd_jobs_free_ended(&store->jobs);
}

static bool may_end(const pd_job *job, const pd_account *except)
{
    return pd_job_is_over(job) && job->export == NULL && job->import == NULL &&
           job->checkpointing.exports.waiting.first == NULL && &job->steps.account != except;
}

/* Returns whether the bytes of a job count in a budget; NULL: the budget of all jobs. */
static bool belongs(const pd_job *job, const pd_budget *budget)
{
    return budget == NULL || budget == job->steps.account.budget || budget == job->steps.account.owner;
}

bool pd_store_end_oldest(pd_store *store, const pd_budget *of, const pd_account *except)
{
    pd_job *oldest = NULL;
    pd_error err;

    for (pd_job *job = store->jobs.names; job != NULL; job = job->hh.next)
        if (may_end(job, except) && belongs(job, of) &&
            (oldest == NULL || job->timers.over_ns < oldest->timers.over_ns))
            oldest = job;
    if (oldest == NULL) return false;
    pd_fail(&err, PD_ABORTED, "job %.100s has ended: it was over, and another job needs its place or its memory",
            oldest->steps.name);
    pd_store_end(store, oldest, &err);
    return true;
}

/* Returns how many bytes of the budget `tight` become free if all exports of weights end, and all jobs that may end to
 * make room for the job with the account `except`. */
static uint64_t bytes_to_spare(const pd_store *store, const pd_account *except, const pd_budget *tight)
{
    uint64_t bytes = 0;

    for (const pd_job *job = store->jobs.names; job != NULL; job = job->hh.next) {
        if (!belongs(job, tight)) continue;
        bytes += pd_export_spare_bytes(job);
        if (store->may_end_jobs && may_end(job, except)) bytes += job->steps.account.used;
    }
    return bytes;
}

/* Ends an export of weights whose bytes count in the budget `tight`. Returns false if there is none. */
static bool end_export(pd_store *store, const pd_budget *tight)
{
    for (pd_job *job = store->jobs.names; job != NULL; job = job->hh.next) {
        if (!belongs(job, tight) || pd_export_spare_bytes(job) == 0) continue;
        pd_export_give_way(job, "its memory is needed for a job");
        return true;
    }
    return false;
}

/* Ends one export of weights, or one job that is over, and returns true. Ends nothing and returns false if ending all
 * of them would not make room in the budget `tight` for `more` further bytes of `account`. */
static bool relieve(void *arg, const pd_account *account, const pd_budget *tight, uint64_t more)
{
    pd_store *store = arg;
    uint64_t bytes = bytes_to_spare(store, account, tight), left = tight->used > bytes ? tight->used - bytes : 0;

    if (bytes == 0 || left > tight->limit || more > tight->limit - left) return false;
    return end_export(store, tight) || pd_store_end_oldest(store, tight, account);
}

void pd_store_relief(pd_store *store, bool allowed)
{
    store->may_end_jobs = allowed;
    store->budget.relieve = relieve;
    store->budget.relieve_arg = store;
}
