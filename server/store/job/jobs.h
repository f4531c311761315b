/* jobs.h - the table of jobs: by name while a job exists, by number until it is freed (when its last preconditioner
 * task has returned), by the time of its next deadline, and by its owner. Step thread. */
#ifndef PD_JOBS_H
#define PD_JOBS_H

#include "job.h"

typedef struct pd_jobs {
    uint64_t hash_key[2];    /* secret key of the hash function for names: name_hash.h */
    pd_job *names, *numbers; /* hash tables of the jobs by name and by number */
    uint32_t n, last_number; /* number of jobs that exist; number of the newest job */
    uint32_t away;           /* number of jobs that are in no table, and come back: store_go_back.h */
    pd_job *ended;           /* jobs in neither table, linked by due.next, whose memory is being freed in parts */
} pd_jobs;

/* Returns the job of that name; NULL: there is none. `name` may be NULL. */
pd_job *pd_jobs_find(const pd_jobs *jobs, const char *name);
/* Returns the job with that number; NULL: there is none. The job may be dropped and wait for preconditioner tasks. */
pd_job *pd_jobs_numbered(const pd_jobs *jobs, uint32_t number);
/* Puts a job into the table of jobs. PD_NO_MEMORY: nothing has changed. */
int pd_jobs_add(pd_jobs *jobs, pd_job *job, pd_error *err);
/* Ends the job: removes its name from the table and marks it as gone. pd_jobs_free_gone frees it later. */
void pd_jobs_drop(pd_jobs *jobs, pd_job *job);
/* Removes a dropped job from the table and gives back its bytes, if all its preconditioner tasks have returned;
 * otherwise does nothing. If the job has many parameters, pd_jobs_free_some frees its memory in parts, faster than
 * other jobs can take as much. */
void pd_jobs_free_gone(pd_jobs *jobs, pd_job *job);
/* Frees a part of a job that has ended, if there is one. */
void pd_jobs_free_some(pd_jobs *jobs);
/* Frees all jobs that have ended. */
void pd_jobs_free_ended(pd_jobs *jobs);

/* Returns the identity that sends a Hello. */
const char *pd_job_owner_identity(const pd_request *hello);
/* Checks that the quota of the identity that sends a Hello has room for the job that the Hello creates.
 * PD_RESOURCE_EXHAUSTED: it has none. */
int pd_job_owner_check(const pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Counts the job in the quota of its owner from now on. A job without an owner gets the identity of the Hello as its
 * owner. PD_NO_MEMORY: no quota counts the job yet. */
int pd_job_owner_set(pd_job *job, pd_owners *owners, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Counts a job that was read from an image in the quota of its owner. If out of memory, the next Hello does it. */
void pd_job_owner_resume(pd_job *job, pd_owners *owners, const pd_roles *roles);
/* Does what pd_job_owner_resume does, for all jobs. */
void pd_job_owners_resume(pd_jobs *jobs, pd_owners *owners, const pd_roles *roles);
/* Checks that the identity of a Hello may form the job again, or change its number of workers. PD_PERMISSION_DENIED: it
 * is not the owner's. */
int pd_job_owner_admits(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err);
/* Checks that the identity of a Hello may end the job to begin it anew. PD_PERMISSION_DENIED: it is not the owner's. */
int pd_job_owner_may_begin_anew(const pd_job *job, const pd_roles *roles, const pd_request *hello, pd_error *err);

/* Sets the time of a job's next deadline; UINT64_MAX: it has none. *first is the job with the earliest deadline; NULL:
 * no job has one. */
void pd_deadlines_set(pd_job **first, pd_job *job, uint64_t at_ns);

#endif
