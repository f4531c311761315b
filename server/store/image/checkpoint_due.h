/* checkpoint_due.h - decides when a job gets a checkpoint, answers requests for one, takes it back from the checkpoint
 * writer, and notices a disk that does not answer. Step thread. */
#ifndef PD_CHECKPOINT_DUE_H
#define PD_CHECKPOINT_DUE_H

#include "job.h"

/* Begins a checkpoint of the job if one is due, or continues with the one under way. Call it after each batch of the
 * job's work, and after requests that the functions below do not take. Cheap if the job has no checkpoints. */
void pd_checkpoint_look(pd_job *job, uint64_t now_ns);

/* Takes a worker's or operator's request for a checkpoint (PD_REQ_CHECKPOINT), and answers it when the checkpoint is
 * durable. Takes ownership of the request. */
void pd_checkpoint_ask(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes a checkpoint back from the checkpoint writer (PD_REQ_CHECKPOINT_WRITTEN). `job` is the job that it is of; NULL:
 * this job has ended. Takes ownership of the request. */
void pd_checkpoint_done(pd_job *job, pd_effects *outbox, pd_request *request, uint64_t now_ns);

/* pd_checkpoint_next_tick returns the time of the next deadline of the job's checkpoints; UINT64_MAX: there is none.
 * pd_checkpoint_tick does the work of deadlines that have passed. */
uint64_t pd_checkpoint_next_tick(const pd_job *job);
void pd_checkpoint_tick(pd_job *job, uint64_t now_ns);

#endif
