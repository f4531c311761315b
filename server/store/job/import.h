/* import.h - imports optimizer state that an operator sends, such as tensors of a saved file, or sets state back to its
 * initial values (reset_state.h). All of it is put into the job, or nothing. Step thread.
 *
 * After the begin request, the tensors are staged (kept in separate memory) piece by piece, while the job goes on
 * training. The commit request checks that all tensors have come, and waits up to ten seconds for a moment at which no
 * step or preconditioner task of the job is under way and nobody copies its state. Then the tensors are written into
 * the optimizers in bounded batches, and no step begins until all are written. Rounds may be open meanwhile: in a new
 * job other ranks may have pushed for the first step already. A job with checkpoints begins one at once.
 *
 * The staged tensors are discarded when an operator begins another import, after a minute without a request, and when
 * the job ends. */
#ifndef PD_IMPORT_H
#define PD_IMPORT_H

#include "job.h"

/* Takes ownership of a PD_REQ_IMPORT for this job, and answers it. A commit is kept, and answered when its tensors
 * are written. */
void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns);

/* Returns whether a commit's tensors are being written into the optimizers. The job takes no steps meanwhile. */
bool pd_import_writes(const pd_job *job);
/* Writes tensors of the commit into the optimizers for about `slice_ns` of one core. When all are written, answers the
 * commit. If out of memory, writing goes on a second later. */
void pd_import_write_some(pd_job *job, double slice_ns, uint64_t now_ns);
/* pd_import_expires_ns returns the time at which the staged tensors (kept apart until the commit) are discarded unless
 * a further request comes; UINT64_MAX: nothing is staged. pd_import_tick discards them if that time has passed. */
uint64_t pd_import_expires_ns(const pd_job *job);
void pd_import_tick(pd_job *job, uint64_t now_ns);
/* Discards the job's import because the job ends. If a commit's tensors are being written, the commit is refused with
 * `err`. */
void pd_import_release(pd_job *job, const pd_error *err);

#endif
