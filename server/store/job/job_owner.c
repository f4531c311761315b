/* job_owner.c - the identity whose quota counts a job: set when a Hello creates the job, or comes back to a restored
 * one. */
#include "job_owner.h"

static const char *identity_of(const pd_request *hello)
{
    return hello->u.hello.identity != NULL ? hello->u.hello.identity : "anyone";
}

int pd_job_owner_check(const pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (roles == NULL) return PD_OK;
    return pd_owner_may_create(owners, roles, identity_of(hello), hello->u.hello.job_name, err);
}

int pd_job_owner_set(pd_job *job, pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err)
{
    if (roles == NULL || job->owner != NULL) return PD_OK;
    if ((job->owner = pd_owner_of(owners, roles, identity_of(hello))) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the owner of job %.100s", job->steps.name);
    pd_owner_add(job->owner, &job->steps.account);
    return PD_OK;
}
