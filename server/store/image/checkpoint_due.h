/* checkpoint_due.h - decides when a job gets a checkpoint, answers requests for a checkpoint, takes written checkpoints
 * back from the checkpoint writer, and notices a disk that does not answer. Step thread. */
#ifndef PD_CHECKPOINT_DUE_H
#define PD_CHECKPOINT_DUE_H

#include "job.h"

/* Begins a checkpoint of the job if one is due, or continues the checkpoint that is being made. Call it after each
 * batch of the job's work and after each request that may make a checkpoint due. The functions below call it
 * themselves. Cheap if the job has no checkpoints. */
void pd_checkpoint_look(pd_job *job, uint64_t now_ns);

/* Takes a worker's or an operator's request for a checkpoint (PD_REQ_CHECKPOINT), and answers it when the checkpoint is
 * durable. Takes ownership of the request. */
void pd_checkpoint_ask(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes a checkpoint back from the checkpoint writer (PD_REQ_CHECKPOINT_WRITTEN). `job` is its job; NULL: the job has
 * ended. Takes ownership of the request. */
void pd_checkpoint_done(pd_job *job, pd_effects *outbox, pd_request *request, uint64_t now_ns);

/* Returns the time (ns) of the next deadline of the job's checkpoints; UINT64_MAX: there is none. */
uint64_t pd_checkpoint_next_tick(const pd_job *job);
/* Does what is due at deadlines that have passed: refuses requests that have waited too long, tries a failed checkpoint
 * again, and logs that the disk does not answer. */
void pd_checkpoint_tick(pd_job *job, uint64_t now_ns);

#endif
