/* import.h - imports optimizer state that an operator sends: tensors of a saved file, put into a job completely or
 * not at all. Step thread.
 *
 * After the begin request the tensors are staged piece by piece while the job goes on training. The commit checks
 * that all tensors have come and that no step or root task of the job is under way. It then writes the tensors in
 * bounded batches, and no step begins until all are written. A second begin, a minute without a request, or the end
 * of the job discards the staged tensors. */
#ifndef PD_IMPORT_H
#define PD_IMPORT_H

#include "job.h"

/* Takes a PD_REQ_IMPORT for this job. Answers it, but keeps a commit until its tensors are written. */
void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns);

/* Returns whether a commit is being written. The job takes no steps meanwhile. */
bool pd_import_writes(const pd_job *job);
/* Writes tensors of the commit for about one batch, and answers the commit when all are written. If memory is short,
 * writing goes on a second later. */
void pd_import_write_some(pd_job *job, uint64_t now_ns);
/* Returns the time at which the staged tensors are discarded if no further request comes; UINT64_MAX: nothing is
 * staged. pd_import_tick discards them when that time has passed. */
uint64_t pd_import_expires_ns(const pd_job *job);
void pd_import_tick(pd_job *job, uint64_t now_ns);
/* Discards the import because the job ends. A commit that is being written is refused with `err`. */
void pd_import_release(pd_job *job, const pd_error *err);

#endif
