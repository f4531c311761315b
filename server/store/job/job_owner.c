/* job_owner.c - the identity whose quota counts a job: set when a Hello creates the job, or known from its image. */
#include "job_owner.h"

#include <stdlib.h>
#include <string.h>

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

/* Returns whether the job's owner sends a Hello, as far as owners are known. */
static bool is_owners(const pd_job *job, const pd_roles *roles, const pd_request *hello)
{
    return roles == NULL || job->owner_identity == NULL ||
           strcmp(job->owner_identity, pd_job_owner_identity(hello)) == 0;
}

int pd_job_owner_admits(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (is_owners(job, roles, hello)) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "restored job %.100s has %u workers and belongs to another identity: %.200s may join it, but not "
                   "change their number",
                   job->steps.name, job->steps.members.ranks, pd_job_owner_identity(hello));
}

int pd_job_owner_may_begin_anew(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (is_owners(job, roles, hello)) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "job %.100s belongs to another identity: %.200s may not end it to begin anew. Choose another name "
                   "(job=, PARAMD_JOB)",
                   job->steps.name, pd_job_owner_identity(hello));
}
