/* jobs.c - finds jobs by name and by number, frees jobs that have ended, counts jobs in the quotas of their owners, and
 * sorts jobs by their deadlines. */
#include "jobs.h"

#include "name_hash.h"
#include "param_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Number of parameters of an ended job that are freed at once, which takes about 2 ms. */
enum { FREED_AT_ONCE = 2048 };

pd_job *pd_jobs_find(const pd_jobs *jobs, const char *name)
{
    pd_job *job = NULL;
    size_t n = name != NULL ? strlen(name) : 0;

    if (n == 0) return NULL;
    HASH_FIND_BYHASHVALUE(hh, jobs->names, name, n, pd_name_hash(jobs->hash_key, name, n), job);
    return job;
}

pd_job *pd_jobs_numbered(const pd_jobs *jobs, uint32_t number)
{
    pd_job *job;

    HASH_FIND(hh_number, jobs->numbers, &number, sizeof number, job);
    return job;
}

int pd_jobs_add(pd_jobs *jobs, pd_job *job, pd_error *err)
{
    const char *name = job->steps.name;
    size_t n = strlen(name);

    HASH_ADD(hh_number, jobs->numbers, steps.number, sizeof job->steps.number, job);
    if (job->hh_number.tbl == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", name);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, jobs->names, name, n, pd_name_hash(jobs->hash_key, name, n), job);
    if (job->hh.tbl == NULL) {
        HASH_DELETE(hh_number, jobs->numbers, job);
        return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", name);
    }
    if (job->steps.number > jobs->last_number) jobs->last_number = job->steps.number;
    jobs->n++;
    return PD_OK;
}

void pd_jobs_drop(pd_jobs *jobs, pd_job *job)
{
    HASH_DEL(jobs->names, job);
    jobs->n--;
    pd_owner_remove(job->owner);
    job->gone = true;
}

/* Gives back what other jobs can use, before the job's memory is freed. The account of weights that answers still send
 * (pd_unread) stays until the job is freed. */
static void leave(pd_job *job)
{
    pd_unread *unread = job->steps.unread;

    pd_param_set_leave(job);
    if (unread != NULL) pd_unread_add(unread, 0);
    pd_unread_end(unread, job->owner);
    pd_owner_let_go(job->owner);
    job->owner = NULL;
}

/* Frees at most n parameters of a job that has ended, and the job if none is left. Returns whether it freed the job. */
static bool free_some(pd_job *job, uint32_t n)
{
    if (!pd_param_set_free_some(job, n)) return false;
    pd_param_set_free_rest(job);
    if (job->steps.unread != NULL) pd_unread_remove(job->steps.unread, 0);
    job->steps.unread = NULL;
    pd_job_free(job);
    return true;
}

void pd_jobs_free_gone(pd_jobs *jobs, pd_job *job)
{
    assert(job->gone);
    if (job->steps.tasks_out > 0) return;
    HASH_DELETE(hh_number, jobs->numbers, job);
    leave(job);
    if (!free_some(job, FREED_AT_ONCE)) LL_APPEND2(jobs->ended, job, due.next);
}

void pd_jobs_free_some(pd_jobs *jobs)
{
    pd_job *job = jobs->ended, *next = job != NULL ? job->due.next : NULL;

    if (job != NULL && free_some(job, FREED_AT_ONCE)) jobs->ended = next;
}

void pd_jobs_free_ended(pd_jobs *jobs)
{
    while (jobs->ended != NULL) pd_jobs_free_some(jobs);
}

const char *pd_job_owner_identity(const pd_request *hello)
{
    return hello->u.hello.identity != NULL ? hello->u.hello.identity : "anyone";
}

int pd_job_owner_check(const pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (roles == NULL) return PD_OK;
    return pd_owner_may_create(owners, roles, pd_job_owner_identity(hello), hello->u.hello.job_name, err);
}

static int count(pd_job *job, pd_owners *owners, const pd_roles *roles)
{
    if ((job->owner = pd_owner_of(owners, roles, job->owner_identity)) == NULL) return PD_NO_MEMORY;
    pd_owner_add(job->owner, &job->steps.account);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        pd_quota_join(&job->steps.quotas[r], pd_owner_share(job->owner));
    return PD_OK;
}

int pd_job_owner_set(pd_job *job, pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    bool unknown = job->owner_identity == NULL;

    if (roles == NULL || job->owner != NULL) return PD_OK;
    if (unknown) job->owner_identity = strdup(pd_job_owner_identity(hello));
    if (job->owner_identity != NULL && count(job, owners, roles) == PD_OK) return PD_OK;
    if (unknown) {
        free(job->owner_identity);
        job->owner_identity = NULL;
    }
    return pd_fail(err, PD_NO_MEMORY, "out of memory for the owner of job %.100s", job->steps.name);
}

void pd_job_owner_resume(pd_job *job, pd_owners *owners, const pd_roles *roles)
{
    if (roles != NULL && job->owner == NULL && job->owner_identity != NULL) (void)count(job, owners, roles);
}

void pd_job_owners_resume(pd_jobs *jobs, pd_owners *owners, const pd_roles *roles)
{
    pd_job *job, *next;

    HASH_ITER(hh, jobs->names, job, next) pd_job_owner_resume(job, owners, roles);
}

/* Returns whether the Hello comes from the job's owner; true if the server has no roles or does not know the owner. */
static bool is_owners(const pd_job *job, const pd_roles *roles, const pd_request *hello)
{
    return roles == NULL || job->owner_identity == NULL ||
           strcmp(job->owner_identity, pd_job_owner_identity(hello)) == 0;
}

int pd_job_owner_admits(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (is_owners(job, roles, hello)) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "job %.100s has %u workers and belongs to another identity: %.200s may join it, but not form it "
                   "again, or change their number",
                   job->steps.name, job->saved.workers, pd_job_owner_identity(hello));
}

int pd_job_owner_may_begin_anew(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (is_owners(job, roles, hello)) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "job %.100s belongs to another identity: %.200s may not end it to begin anew. Choose another name "
                   "(job=, PARAMD_JOB)",
                   job->steps.name, pd_job_owner_identity(hello));
}

/* Joins two heaps of jobs, each given by its first job, which has no siblings; NULL is an empty heap. Returns the first
 * job of the result. */
static pd_job *meld(pd_job *a, pd_job *b)
{
    pd_job *first = b == NULL || (a != NULL && a->deadline.at_ns <= b->deadline.at_ns) ? a : b,
           *other = first == a ? b : a;

    if (other == NULL) return first;
    other->deadline.prev = first;
    other->deadline.next = first->deadline.later;
    if (other->deadline.next != NULL) other->deadline.next->deadline.prev = other;
    first->deadline.later = other;
    return first;
}

static pd_job *take_alone(pd_job **list)
{
    pd_job *job = *list;

    if (job == NULL) return NULL;
    *list = job->deadline.next;
    job->deadline.next = job->deadline.prev = NULL;
    return job;
}

/* Joins all heaps whose first jobs are siblings: first in pairs, then the pairs one after another. Returns the first
 * job of the result; NULL: there are no siblings. */
static pd_job *meld_all(pd_job *siblings)
{
    pd_job *pairs = NULL, *pair, *all = NULL;

    while ((pair = take_alone(&siblings)) != NULL) {
        pair = meld(pair, take_alone(&siblings));
        pair->deadline.next = pairs;
        pairs = pair;
    }
    while ((pair = take_alone(&pairs)) != NULL) all = meld(all, pair);
    return all;
}

static void remove_job(pd_job **first, pd_job *job)
{
    pd_job *rest = meld_all(job->deadline.later), *before = job->deadline.prev;

    if (job == *first) {
        *first = rest;
    } else {
        if (before->deadline.later == job)
            before->deadline.later = job->deadline.next;
        else
            before->deadline.next = job->deadline.next;
        if (job->deadline.next != NULL) job->deadline.next->deadline.prev = before;
        *first = meld(*first, rest);
    }
    job->deadline.later = job->deadline.prev = job->deadline.next = NULL;
}

void pd_deadlines_set(pd_job **first, pd_job *job, uint64_t at_ns)
{
    if (job->deadline.is_set ? job->deadline.at_ns == at_ns : at_ns == UINT64_MAX) return;
    if (job->deadline.is_set) remove_job(first, job);
    job->deadline.at_ns = at_ns;
    job->deadline.is_set = at_ns != UINT64_MAX;
    if (job->deadline.is_set) *first = meld(*first, job);
}
