/* param_set.h - the parameters of a job: finds them by name, counts their bytes, and forgets them. Step thread. */
#ifndef PD_PARAM_SET_H
#define PD_PARAM_SET_H

#include "job.h"

/* Returns the parameter of that name in a hash table, or NULL. */
pd_param *pd_param_named(const pd_job *job, pd_param *names, const char *name);
/* Returns the job's parameter of that name, or NULL. */
pd_param *pd_job_param(const pd_job *job, const char *name);
/* Returns the parameter that declaration i of a Declare names, or NULL. Quick where the ranks declare in the same
 * order. */
pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i);

/* Checks that so many more bytes fit into max_total_bytes. PD_RESOURCE_EXHAUSTED. */
int  pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err);
/* Frees the parameters and forgets the bytes and reserves that were counted for them: the job has not declared any
 * more. No contribution is held, no root task is out, and no planning is under way (planning.h). */
void pd_param_set_forget(pd_job *job);

#endif
