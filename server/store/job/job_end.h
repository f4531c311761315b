/* job_end.h - the end of a job: refuses its waiting requests, and gives its buffers back. Step thread. */
#ifndef PD_JOB_END_H
#define PD_JOB_END_H

#include "job.h"

/* Refuses all waiting requests of the job with `err`, and gives its buffers back. Afterwards the job must not be used
 * any more; its memory is freed when all its preconditioner tasks have come back. */
void pd_job_release(pd_job *job, const pd_error *err);

#endif
