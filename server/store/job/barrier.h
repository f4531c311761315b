/* barrier.h - a barrier of a job's workers: the workers are answered when all ranks have come. Step thread. */
#ifndef PD_BARRIER_H
#define PD_BARRIER_H

#include "job.h"

/* Notes that a rank has come to its next barrier, and keeps the request until all ranks have come. Then all of them
 * are answered. Takes ownership of the request. */
void pd_job_barrier(pd_job *job, pd_request *request);

#endif
