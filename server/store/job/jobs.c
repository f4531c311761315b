/* jobs.c - the two hash tables that find jobs by name and by number. */
#include "jobs.h"

#include "name_hash.h"
#include "param_set.h"

#include <assert.h>
#include <string.h>

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

void pd_jobs_free_gone(pd_jobs *jobs, pd_job *job)
{
    assert(job->gone);
    if (job->steps.tasks_out > 0) return;
    HASH_DELETE(hh_number, jobs->numbers, job);
    pd_param_set_forget(job);
    pd_job_free(job);
}
