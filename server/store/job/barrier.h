/* barrier.h - a barrier of a job's workers: each is answered when all have come. Step thread. */
#ifndef PD_BARRIER_H
#define PD_BARRIER_H

#include "job.h"

/* A rank comes to its next barrier. Takes the request. */
void pd_job_barrier(pd_job *job, pd_request *request);

#endif
