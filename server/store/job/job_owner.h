/* job_owner.h - the identity whose quota counts a job. A server without roles has no quotas, and its jobs no owners.
 * Step thread. */
#ifndef PD_JOB_OWNER_H
#define PD_JOB_OWNER_H

#include "jobs.h"

/* Returns the identity that sends a Hello. */
const char *pd_job_owner_identity(const pd_request *hello);
/* Checks that the quota of the identity that sends a Hello has room for the job that the Hello creates.
 * PD_RESOURCE_EXHAUSTED: it has none. */
int pd_job_owner_check(const pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Lets the quota of the job's owner count the job from now on. A job without an owner gets the identity of the Hello as
 * its owner. PD_NO_MEMORY: nobody counts the job yet. */
int pd_job_owner_set(pd_job *job, pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Lets the quota of its owner count a job that was read from an image. Without memory the next Hello does it. */
void pd_job_owner_resume(pd_job *job, pd_owners *owners, const pd_roles *roles);
/* Does it for all jobs. */
void pd_job_owners_resume(pd_jobs *jobs, pd_owners *owners, const pd_roles *roles);
/* Checks that the identity of a Hello may change the number of workers of a restored job: that of its owner may.
 * PD_PERMISSION_DENIED: another one must not. */
int pd_job_owner_admits(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Checks that the identity of a Hello may end the job to begin it anew: that of its owner may. PD_PERMISSION_DENIED. */
int pd_job_owner_may_begin_anew(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err);

#endif
