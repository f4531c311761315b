/* param_set.h - the parameters of a job: finds them by name, counts their bytes, and frees them. Step thread. */
#ifndef PD_PARAM_SET_H
#define PD_PARAM_SET_H

#include "glob.h"
#include "job.h"

/* Returns the parameter of that name from `names`, a hash table of parameters by name; NULL: there is none. */
pd_param *pd_param_named(const pd_job *job, pd_param *names, const char *name);
/* Returns the job's parameter of that name; NULL: there is none. */
pd_param *pd_job_param(const pd_job *job, const char *name);
/* Returns the job's parameter of the name that an operator's request has; NULL, with PD_NOT_FOUND in *err: there is
 * none. */
pd_param *pd_job_param_or_error(const pd_job *job, const char *name, pd_error *err);
/* Checks an operator's pattern for names of parameters. PD_INVALID_ARGUMENT. */
int pd_pattern_check(const char *pattern, pd_error *err);
/* Checks that the budgets have room for `bytes` more bytes of the job. `what` names them in the error.
 * PD_RESOURCE_EXHAUSTED: they have no room. */
int pd_job_check_room(const pd_job *job, uint64_t bytes, const char *what, pd_error *err);
/* Returns whether an operator's pattern means the parameter: it matches its name, or the name in the declaration, so
 * that `wte` means all portions of wte, on all shards. */
bool pd_param_is_meant(const pd_param *param, pd_glob *pattern);
/* Returns the job's parameter that entry i of a Declare names; NULL: there is none. The result is stored in the entry.
 * No search is needed if all ranks declare in the same order. */
pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i);

/* Checks that the budgets have room for `more` bytes of the job's parameters besides all bytes in use.
 * PD_RESOURCE_EXHAUSTED: they have no room. */
int pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err);
/* Frees the job's parameters, and gives back the bytes that are charged for them and the ranks' reserves in the ingest
 * budget. Afterwards the job is as if no rank had declared. The caller makes sure that the job has no contribution,
 * that none of its preconditioner tasks is running, and that no planning is under way (planning.h). */
void pd_param_set_forget(pd_job *job);

/* Do what pd_param_set_forget does, in parts, for a job that has ended. pd_param_set_leave, called first, gives back
 * the bytes and the reserves. pd_param_set_free_some frees at most n parameters, and returns true when all are freed.
 * pd_param_set_free_rest then frees what the parameters share. */
void pd_param_set_leave(pd_job *job);
bool pd_param_set_free_some(pd_job *job, uint32_t n);
void pd_param_set_free_rest(pd_job *job);

#endif
