/* job_turn.h - does one turn of a job: a bounded batch of its work, or the work of deadlines that have passed. Also
 * ends the job. Step thread. */
#ifndef PD_JOB_TURN_H
#define PD_JOB_TURN_H

#include "job.h"

/* Returns whether the job has work that pd_job_work can do now. */
bool pd_job_has_work(const pd_job *job, uint64_t now_ns);
/* Does one batch of the job's work: as much as a time limit allows. */
void pd_job_work(pd_job *job, uint64_t now_ns);

/* Returns the time of the job's next deadline, at which pd_job_tick must be called; UINT64_MAX: there is no
 * deadline. */
uint64_t pd_job_next_tick(const pd_job *job);
/* What becomes of a job. Unless it stays, the caller drops it; `err` says why. */
typedef enum pd_fate {
    PD_JOB_STAYS,
    PD_JOB_ENDS,  /* its workers are gone: its files are not needed any more */
    PD_JOB_FAILS, /* a worker is missing that must not be missing: its files stay, so that the job can be restored */
} pd_fate;

/* Does the work of those deadlines of the job that have passed. */
pd_fate pd_job_tick(pd_job *job, uint64_t now_ns, pd_error *err);

/* Refuses all waiting requests of the job with `err`, and returns its buffers to their pools. Afterwards the job must
 * not be used any more; its memory is freed when all its preconditioner tasks have returned. */
void pd_job_release(pd_job *job, const pd_error *err);

#endif
