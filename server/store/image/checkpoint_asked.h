/* checkpoint_asked.h - answers those who have asked for a checkpoint of a job (pd_checkpoint_policy.asked). Step
 * thread. */
#ifndef PD_CHECKPOINT_ASKED_H
#define PD_CHECKPOINT_ASKED_H

#include "job.h"

/* Answers a request for a checkpoint with the durable step. `bytes` and `ns` are those of the checkpoint that was
 * written for it; 0: an earlier one sufficed. Takes ownership of the request. */
void pd_checkpoint_answer(pd_job *job, pd_request *request, uint64_t bytes, uint64_t ns);
/* Returns whether the newest durable checkpoint has all changes of the state that no step has made (an import, weights
 * that were replaced) and that came before the request. */
bool pd_checkpoint_has_changes(const pd_job *job, const pd_request *request);
/* Answers those who wait for a checkpoint of step `step` or an earlier one: with the error *err, or if it is NULL with
 * the checkpoint that was written. */
void pd_checkpoint_answer_all(pd_job *job, uint64_t step, const pd_error *err, uint64_t bytes, uint64_t ns);
/* Answers those workers who wait until a step is durable that the job's log has on the disk now. */
void pd_checkpoint_answer_workers(pd_job *job);
/* Notes that a checkpoint is on the disk or has failed. If it was the last one before the server stops, the drain need
 * not wait for it any more. */
void pd_checkpoint_ended(pd_job *job);
/* Notes that the checkpoint of this step could not be made or written, and refuses those who wait for it. */
void pd_checkpoint_failed(pd_job *job, uint64_t step, const pd_error *err);

#endif
