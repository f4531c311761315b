/* resize.h - gives a job that was restored another number of workers. Step thread.
 *
 * A job that was read from an image or from a checkpoint has the world_size of its old workers. Until a worker has
 * joined it, a process that was not one of these workers may bring another world_size, which the job then takes over.
 * Weights, optimizer state, steps, overrides, clip and scalars stay. The new ranks have no process yet, and each
 * declares the ranges that it contributes of ranged parameters. Barriers count from the new processes. Notes of ranks
 * that still exist stay. */
#ifndef PD_RESIZE_H
#define PD_RESIZE_H

#include "jobs.h"

/* Returns whether the job takes over the world_size of this Hello, which is another one than the job's. */
bool pd_may_resize(const pd_job *job, const pd_request *hello);
/* Replaces the job *job in the table of jobs by one with the world_size of the Hello and the same state, and frees the
 * old one, which must not be in the store's queue. The memory of the new job is counted in place of the old one's.
 * After an error nothing has changed:
 *
 *   PD_FAILED_PRECONDITION  other options of the Hello differ from the job's
 *   PD_INVALID_ARGUMENT     the job's configuration does not suit this number of workers
 *   PD_RESOURCE_EXHAUSTED   the job would exceed a limit
 *   PD_UNAVAILABLE          an export, an import or a checkpoint is under way
 *   PD_NO_MEMORY */
int pd_resize(pd_job **job, pd_jobs *jobs, const pd_job_env *env, const pd_request *hello, uint64_t now_ns,
              pd_error *err);

#endif
