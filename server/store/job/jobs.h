/* jobs.h - the table of jobs: by name while they live, by number until their root tasks are back. Step thread. */
#ifndef PD_JOBS_H
#define PD_JOBS_H

#include "job.h"

typedef struct pd_jobs {
    uint64_t hash_key[2];               /* of names: name_hash.h */
    pd_job  *names, *numbers;           /* hash tables */
    uint32_t n, last_number;            /* jobs alive; the number given last */
} pd_jobs;

/* Returns the job of that name, or NULL; `name` may be NULL. */
pd_job *pd_jobs_find(const pd_jobs *jobs, const char *name);
/* Returns the job of that number, also one that was dropped, or NULL. */
pd_job *pd_jobs_numbered(const pd_jobs *jobs, uint32_t number);
/* Puts a job into the table. PD_NO_MEMORY: nothing has changed. */
int     pd_jobs_add(pd_jobs *jobs, pd_job *job, pd_error *err);
/* Takes a job's name out of the table: it is gone. */
void    pd_jobs_drop(pd_jobs *jobs, pd_job *job);
/* Frees a job that is gone, once its root tasks are back. */
void    pd_jobs_free_gone(pd_jobs *jobs, pd_job *job);

#endif
