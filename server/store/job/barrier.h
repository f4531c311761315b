/* barrier.h - a barrier of a job's workers: the workers are answered when all ranks have come. Step thread. */
#ifndef PD_BARRIER_H
#define PD_BARRIER_H

#include "job.h"

/* Notes that a rank has come to its next barrier, and keeps the request until all ranks have come. Then all of them
 * are answered. Takes ownership of the request. */
void pd_job_barrier(pd_job *job, pd_request *request);
/* Refuses all requests of ranks that wait at a barrier. */
void pd_barriers_refuse(pd_job *job, const pd_error *err);
/* Compares the barriers that a process has passed, as its Hello says, with those that the job has passed. `same` says
 * whether the rank had this process already. A new process counts its barriers from 1.
 *
 * A job that was restored from a checkpoint may have passed more barriers than the checkpoint knows. Then those are
 * counted as passed that any of its processes has passed, so that nobody waits at a barrier that others have passed. */
void pd_barrier_joined(pd_job *job, pd_rank *rank, uint64_t passed, bool same);

#endif
