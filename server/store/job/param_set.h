/* param_set.h - the parameters of a job: finds them by name, counts their bytes, and frees them. Step thread. */
#ifndef PD_PARAM_SET_H
#define PD_PARAM_SET_H

#include "job.h"

/* Returns the parameter of that name from the hash table `names`, or NULL. */
pd_param *pd_param_named(const pd_job *job, pd_param *names, const char *name);
/* Returns the job's parameter of that name, or NULL. */
pd_param *pd_job_param(const pd_job *job, const char *name);
/* Returns the parameter that declaration i of a Declare names, or NULL. Fast if all ranks declare in the same order. */
pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i);

/* Checks that `more` bytes fit into max_total_bytes beside the bytes that are counted already.
 * PD_RESOURCE_EXHAUSTED: they do not. */
int pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err);
/* Frees the job's parameters and takes back the bytes and reserves that were counted for them. Afterwards the job has
 * no declaration. The caller makes sure that the job holds no contribution, that none of its root tasks runs, and that
 * no planning is under way (planning.h). */
void pd_param_set_forget(pd_job *job);

#endif
