/* store_hello.c - lets a worker into the job that its Hello names: into the job that is there, into the same job with
 * another number of workers, or into a new one. */
#include "store_hello.h"

#include "barrier.h"
#include "export.h"
#include "hello.h"
#include "job_owner.h"
#include "checkpoint_policy.h"
#include "lingering.h"
#include "ranks.h"
#include "store_end.h"
#include "succession.h"
#include "resize.h"

/* ---- new jobs ---- */

/* Checks that one more job is allowed. Jobs that are over end for it. */
static int check_jobs(pd_store *store, const pd_request *request, pd_error *err)
{
    const pd_owner *owner = pd_owner_find(&store->owners, pd_job_owner_identity(request));
    int rc;

    while (store->jobs.n >= store->config.max_jobs)
        if (!pd_store_end_oldest(store, NULL, NULL))
            return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                           "job %.100s would be one more than the %u jobs allowed "
                           "(limits.max_jobs)",
                           request->u.hello.job_name, store->config.max_jobs);
    while ((rc = pd_job_owner_check(&store->owners, store->roles, request, err)) != PD_OK && owner != NULL)
        if (!pd_store_end_oldest(store, pd_owner_budget(owner), NULL)) break;
    return rc;
}

/* Ends the job that a Hello begins anew, and makes room for the new one. */
static int take_place(pd_store *store, pd_job *old, const pd_request *request, pd_error *err)
{
    pd_error why;

    if (old == NULL) return check_jobs(store, request, err);
    pd_fail(&why, PD_ABORTED, "job %.100s has ended: a new run has begun it anew", old->steps.name);
    pd_store_end(store, old, &why);
    return PD_OK;
}

/* Creates the job that a Hello describes, in place of the job `old` of this name; NULL: there is none. If the Hello
 * does not describe a valid job, `old` stays. */
static int create_job(pd_store *store, const pd_request *request, pd_job *old, pd_job **out, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    pd_job *job;
    int rc;

    if (store->drain.draining) return pd_fail(err, PD_UNAVAILABLE, "the server is draining and takes no new jobs");
    if (old != NULL && (rc = pd_job_owner_may_begin_anew(old, store->roles, request, err)) != PD_OK) return rc;
    if ((rc = pd_hello_check_globs(request, err)) != PD_OK) return rc;
    if ((rc = pd_job_new(&job, &env, store->jobs.last_number + 1, request, err)) != PD_OK) return rc;
    if ((rc = pd_checkpoint_policy_begin(job, err)) != PD_OK || (rc = take_place(store, old, request, err)) != PD_OK ||
        (rc = pd_job_owner_set(job, &store->owners, store->roles, request, err)) != PD_OK ||
        (rc = pd_jobs_add(&store->jobs, job, err)) != PD_OK) {
        pd_owner_remove(job->owner);
        pd_job_free(job);
        return rc;
    }
    pd_say(&store->outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name }, "created for %u workers",
           job->steps.members.ranks);
    *out = job;
    return PD_OK;
}

/* ---- jobs that are there ---- */

/* Returns whether a worker wants to rejoin a job that does not exist any more. `job` is the one that has the name
 * now; NULL: none has. */
static bool rejoins_nothing(const pd_request *hello, const pd_job *job)
{
    return hello->u.hello.rejoins &&
           (job == NULL || (hello->u.hello.creator != 0 && hello->u.hello.creator != job->saved.creator));
}

/* Replaces a restored job by one with the number of workers that this Hello brings. */
static int change_world(pd_store *store, pd_job **job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    if ((rc = pd_job_owner_admits(*job, store->roles, request, err)) != PD_OK) return rc;
    pd_store_forget(store, *job);
    rc = pd_resize(job, &store->jobs, &env, request, now_ns, err);
    pd_job_owner_resume(*job, &store->owners, store->roles);
    return rc;
}

/* Checks that the worker's Hello describes the job, or lets a restored job take over its number of workers. If it does
 * not, and the job has no workers at present, the error says so. */
static int agree(pd_store *store, pd_job **job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    int rc = pd_may_resize(*job, request) ? change_world(store, job, request, now_ns, err)
                                          : pd_job_agrees(*job, request, err);

    if (rc == PD_FAILED_PRECONDITION) pd_linger_explain(*job, now_ns, err);
    return rc;
}

static void join(pd_job *job, pd_request *request, bool created, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[request->rank];
    uint64_t barriers = request->u.hello.barriers;
    bool same;

    pd_export_worker_comes(job);
    same = pd_rank_join(job, request, created, now_ns);
    pd_barrier_joined(job, rank, barriers, same);
}

/* Finds out whether a Hello creates the job of its name. `job` is the one that has the name; NULL: none has. */
static int decide(const pd_store *store, pd_job *job, const pd_request *request, uint64_t now_ns, bool *creates,
                  pd_error *err)
{
    int rc = PD_OK;

    *creates = job == NULL;
    if (job == NULL) return request->u.hello.joins ? pd_succession_wait_for_creator(request, err) : PD_OK;
    if (request->rank < job->steps.members.ranks) rc = pd_rank_admits(job, request, store->roles != NULL, err);
    /* A superseded process hears first whether it describes the job, and then that it stays out. */
    if (rc == PD_ABORTED) return PD_OK;
    return rc == PD_OK ? pd_succession_decide(job, request, now_ns, creates, err) : rc;
}

pd_job *pd_store_hello(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_job *job = pd_jobs_find(&store->jobs, request->u.hello.job_name);
    bool created = false;
    int rc = pd_hello_check(request, &err);

    if (rc == PD_OK && rejoins_nothing(request, job))
        rc = pd_fail(&err, PD_NOT_FOUND,
                     "the job %.200s that this worker was in is not on this server any more, and "
                     "who rejoins a job does not create it",
                     request->u.hello.job_name);
    if (rc == PD_OK) rc = decide(store, job, request, now_ns, &created, &err);
    if (rc == PD_OK)
        rc = created ? create_job(store, request, job, &job, &err) : agree(store, &job, request, now_ns, &err);
    if (rc == PD_OK) rc = pd_rank_admits(job, request, store->roles != NULL, &err);
    if (rc == PD_OK) rc = pd_job_owner_set(job, &store->owners, store->roles, request, &err);
    if (rc == PD_OK && !created) rc = pd_succession_take_run(job, request, &err);
    if (rc != PD_OK) {
        job = pd_jobs_find(&store->jobs, request->u.hello.job_name); /* it may have ended */
        pd_request_refuse(&store->outbox, request, &err);
        return job;
    }
    join(job, request, created, now_ns);
    return job;
}
