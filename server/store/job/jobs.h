/* jobs.h - the table of jobs: finds a job by its name while it exists, and by its number until its last root task
 * has come back. Step thread. */
#ifndef PD_JOBS_H
#define PD_JOBS_H

#include "job.h"

typedef struct pd_jobs {
    uint64_t hash_key[2];    /* secret key of the hash function for names: name_hash.h */
    pd_job *names, *numbers; /* hash tables of the jobs by name and by number */
    uint32_t n, last_number; /* number of jobs that exist; number given to the newest job */
} pd_jobs;

/* Returns the job of that name, or NULL; `name` may be NULL. */
pd_job *pd_jobs_find(const pd_jobs *jobs, const char *name);
/* Returns the job with that number, or NULL. It may be a job that was dropped and waits for its root tasks. */
pd_job *pd_jobs_numbered(const pd_jobs *jobs, uint32_t number);
/* Puts a job into the table. PD_NO_MEMORY: nothing has changed. */
int pd_jobs_add(pd_jobs *jobs, pd_job *job, pd_error *err);
/* Drops the job: removes its name from the table and marks it as gone. */
void pd_jobs_drop(pd_jobs *jobs, pd_job *job);
/* Frees a job that was dropped, if all its root tasks have come back. Otherwise does nothing. */
void pd_jobs_free_gone(pd_jobs *jobs, pd_job *job);

#endif
