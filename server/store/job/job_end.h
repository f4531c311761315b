/* job_end.h - the end of a job: waiters are answered, buffers go home. Step thread. */
#ifndef PD_JOB_END_H
#define PD_JOB_END_H

#include "job.h"

/* Answers whoever waits with `err` and sends buffers home. Nothing of the job is used any more afterwards. */
void pd_job_release(pd_job *job, const pd_error *err);

#endif
