/* jobs.c - the two hash tables that find jobs by name and by number. */
#include "jobs.h"

#include "name_hash.h"
#include "param_set.h"

#include <assert.h>
#include <string.h>
#include <utlist.h>

/* Number of parameters of a job that has ended which are freed in one go. That takes about 2 ms. */
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
    jobs->last_number = job->steps.number;
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

/* Takes back what other jobs can use, before the job's memory is freed. The record of weights that answers have stays
 * until then. */
static void leave(pd_job *job)
{
    pd_unread *unread = job->steps.unread;

    pd_param_set_leave(job);
    if (unread != NULL) pd_unread_add(unread, 0);
    pd_unread_end(unread, job->owner);
    pd_owner_let_go(job->owner);
    job->owner = NULL;
}

/* Frees at most n parameters of a job that has ended, and the job if they are its last. Returns whether it did. */
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
    if (!free_some(job, FREED_AT_ONCE)) LL_APPEND2(jobs->ended, job, next_due);
}

void pd_jobs_free_some(pd_jobs *jobs)
{
    pd_job *job = jobs->ended, *next = job != NULL ? job->next_due : NULL;

    if (job != NULL && free_some(job, FREED_AT_ONCE)) jobs->ended = next;
}

void pd_jobs_free_ended(pd_jobs *jobs)
{
    while (jobs->ended != NULL) pd_jobs_free_some(jobs);
}
