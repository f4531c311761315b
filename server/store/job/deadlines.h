/* deadlines.h - the jobs that have a deadline, by its time: a heap, so that no request, batch or deadline costs a look
 * at all jobs. Step thread. */
#ifndef PD_DEADLINES_H
#define PD_DEADLINES_H

#include "job.h"

/* Sets the time of a job's next deadline; UINT64_MAX: it has none. *first is the job with the earliest deadline; NULL:
 * no job has one. */
void pd_deadlines_set(pd_job **first, pd_job *job, uint64_t at_ns);

#endif
