/* job_turn.h - one turn of a job: a batch of bounded work, and what is due by the clock. Step thread. */
#ifndef PD_JOB_TURN_H
#define PD_JOB_TURN_H

#include "job.h"

/* Returns whether the job has something to do now. */
bool     pd_job_has_work(const pd_job *job, uint64_t now_ns);
/* Does one batch of it. */
void     pd_job_work(pd_job *job, uint64_t now_ns);

/* Returns when pd_job_tick wants to be called; UINT64_MAX: never. */
uint64_t pd_job_next_tick(const pd_job *job);
/* Does what is due. False: the job has ended, and *err says why; the caller drops it. */
bool     pd_job_tick(pd_job *job, uint64_t now_ns, pd_error *err);

#endif
