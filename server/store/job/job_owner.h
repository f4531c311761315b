/* job_owner.h - the identity whose quota counts a job. A server without roles has no quotas, and its jobs no owners.
 * Step thread. */
#ifndef PD_JOB_OWNER_H
#define PD_JOB_OWNER_H

#include "job.h"

/* Checks that the quota of the identity that sends a Hello has room for the job that the Hello creates.
 * PD_RESOURCE_EXHAUSTED: it has none. */
int pd_job_owner_check(const pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Gives a job that has no owner to the identity of a Hello, whose quota counts it from now on. PD_NO_MEMORY: the job
 * still has no owner. */
int pd_job_owner_set(pd_job *job, pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);

#endif
