/* checkpoint.h - makes checkpoints of a job while it trains, and takes them back from the keeper thread. Step thread.
 *
 * A checkpoint begins with a cut (cut.h) at some step S. Parameters that have closed step S rest: they may collect
 * contributions, but take no further step. When all have closed it, the head of the image is written. Then each
 * parameter's state is copied, in slices of bounded time, and the parameter goes on. Weights are not copied: the
 * checkpoint refers to their snapshots, which nobody changes.
 *
 * Root tasks (computations of matrix roots) that are at the root pool meanwhile belong to the state, too. The parameter
 * does not wait for them, but the checkpoint does: their results are added when they come back. Then the checkpoint goes
 * to the keeper thread (PD_EFF_KEEP), which writes it to the disk and sends it back (PD_REQ_KEPT).
 *
 * If some parameter does not reach step S in time, each parameter is taken at the step that it has, provided that no
 * step is under way. A job has one checkpoint under way at a time. A checkpoint that cannot be made is given up with a
 * line in the log, and the job goes on. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include "job.h"

/* Begins a checkpoint of the job if one is due, or goes on with the one under way. Call it after each batch of the job's
 * work, and after requests that the functions below do not take. Cheap if the job has no checkpoints. */
void pd_checkpoint_look(pd_job *job, uint64_t now_ns);
/* Returns whether parameters can be copied now. */
bool pd_checkpoint_has_work(const pd_job *job);
/* Copies parameters for about half of the time of a batch of work. */
void pd_checkpoint_work(pd_job *job, uint64_t now_ns);
/* Takes the result of a root task (computation of a matrix root) that has come back, if the checkpoint waits for it. Call
 * it before the task is delivered to its optimizer. */
void pd_checkpoint_task(pd_job *job, uint32_t param, struct pd_task *task);

/* Takes a worker's or operator's request for a checkpoint (PD_REQ_CHECKPOINT), and answers it when the checkpoint is
 * durable. Takes ownership of the request. */
void pd_checkpoint_ask(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes a checkpoint back from the keeper thread (PD_REQ_KEPT). `job` is the job that it is of; NULL: this job has ended.
 * Takes ownership of the request. */
void pd_checkpoint_kept(pd_job *job, pd_effects *outbox, pd_request *request, uint64_t now_ns);

/* pd_checkpoint_next_tick returns the time of the next deadline of the job's checkpoints; UINT64_MAX: there is none.
 * pd_checkpoint_tick does the work of deadlines that have passed. */
uint64_t pd_checkpoint_next_tick(const pd_job *job);
void pd_checkpoint_tick(pd_job *job, uint64_t now_ns);
/* Gives up the checkpoint that is being made, and refuses requests that wait for one with `err`, because the job
 * ends. */
void pd_checkpoint_release(pd_job *job, const pd_error *err);

#endif
