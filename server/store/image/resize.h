/* resize.h - gives a job another world size. Step thread.
 *
 * The Hello of a process that was none of the job's workers may name another world size, and the job is resized to it:
 *
 *   - if the job was read from an image or a checkpoint, and no worker has joined it since;
 *   - if all workers were lost for longer than reconnect_grace;
 *   - if the Hello is of a later launch, whose first Hello has sent the old workers away (job/generation.h).
 *
 * Weights, optimizer state, steps, overrides, clip and scalars stay. The new ranks have no process yet, and each
 * declares its slices of ranged parameters. The new processes count barriers anew. Worker states of ranks that still
 * exist stay. */
#ifndef PD_RESIZE_H
#define PD_RESIZE_H

#include "jobs.h"

/* Returns whether this Hello names another world size than the job's, and may resize the job. */
bool pd_may_resize(const pd_job *job, const pd_request *hello, uint64_t now_ns);
/* Replaces *job in the table of jobs by a job with the world size of the Hello and the same state, and frees the old
 * job, which must not be in the store's queue. The memory of the new job is charged in place of the old job's. After an
 * error the job is unchanged:
 *
 *   PD_FAILED_PRECONDITION  the Hello differs from the job in more than the world size
 *   PD_INVALID_ARGUMENT     the job's configuration does not suit this number of workers
 *   PD_RESOURCE_EXHAUSTED   the job would exceed a limit
 *   PD_UNAVAILABLE          a step, an export, an import or a checkpoint is under way: the worker may retry
 *   PD_NO_MEMORY */
int pd_resize(pd_job **job, pd_jobs *jobs, const pd_job_env *env, const pd_request *hello, uint64_t now_ns,
              pd_error *err);

#endif
