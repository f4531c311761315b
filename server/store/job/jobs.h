/* jobs.h - the table of jobs: finds a job by its name while it exists, and by its number until it is freed, which is
 * when its last preconditioner task has come back. Step thread. */
#ifndef PD_JOBS_H
#define PD_JOBS_H

#include "job.h"

typedef struct pd_jobs {
    uint64_t hash_key[2];    /* secret key of the hash function for names: name_hash.h */
    pd_job *names, *numbers; /* hash tables of the jobs by name and by number */
    uint32_t n, last_number; /* number of jobs that exist; number that the newest job has */
    pd_job *ended;           /* jobs that are in neither table any more, linked by next_due: their memory is freed */
} pd_jobs;

/* Returns the job of that name; NULL: there is none. `name` may be NULL. */
pd_job *pd_jobs_find(const pd_jobs *jobs, const char *name);
/* Returns the job with that number; NULL: there is none. It may be a job that was dropped (ended) and waits for root
 * tasks. */
pd_job *pd_jobs_numbered(const pd_jobs *jobs, uint32_t number);
/* Puts a job into the table of jobs. PD_NO_MEMORY: nothing has changed. */
int pd_jobs_add(pd_jobs *jobs, pd_job *job, pd_error *err);
/* Drops the job, that is, ends it: removes its name from the table and marks it as gone. It is freed later. */
void pd_jobs_drop(pd_jobs *jobs, pd_job *job);
/* Removes a job that was dropped (ended) from the table and takes its bytes back, if all its preconditioner tasks have
 * come back. Otherwise does nothing. The memory of a job with many parameters is freed by pd_jobs_free_some, faster
 * than other jobs can take as much. */
void pd_jobs_free_gone(pd_jobs *jobs, pd_job *job);
/* Frees a part of a job that has ended, if there is one. */
void pd_jobs_free_some(pd_jobs *jobs);
/* Frees all jobs that have ended. */
void pd_jobs_free_ended(pd_jobs *jobs);

#endif
