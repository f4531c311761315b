/* barrier.h - a barrier of a job's workers: the workers are answered when all ranks have come. Step thread. */
#ifndef PD_BARRIER_H
#define PD_BARRIER_H

#include "job.h"

/* Notes that a rank has come to its next barrier. When all ranks have come, answers all of them. Takes the request. */
void pd_job_barrier(pd_job *job, pd_request *request);

#endif
