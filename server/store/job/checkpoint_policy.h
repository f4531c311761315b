/* checkpoint_policy.h - decides whether a job has checkpoints, and at which steps. Also warns if the job writes more
 * than the disk can take (pd_store_config.disk_speed). Step thread.
 *
 * The checkpoints themselves are made in store/image (checkpoint.h). */
#ifndef PD_CHECKPOINT_POLICY_H
#define PD_CHECKPOINT_POLICY_H

#include "job.h"

/* Decides whether the job has checkpoints. Call it once, after the job's configuration was read.
 * PD_FAILED_PRECONDITION: the job demands checkpoints, but the server has no directory for them. PD_NO_MEMORY. */
int pd_checkpoint_policy_begin(pd_job *job, pd_error *err);
/* Computes at which step the next checkpoint is due. Call it after a checkpoint has begun or was skipped, and when
 * ranks have come or gone: the distance between checkpoints is at most half of the smallest window of the connected
 * ranks. */
void pd_checkpoint_policy_plan(pd_job *job);
/* Returns whether the job can go back to steps of its WAL: to each that all parameters have closed, from the step
 * *first of a checkpoint to *last. *first: UINT64_MAX: to none now, since the WAL begins with a checkpoint that is not
 * made yet. *last: UINT64_MAX: the WAL has not ended. */
bool pd_checkpoint_policy_replays(const pd_job *job, uint64_t *first, uint64_t *last);
/* Returns the step from which on the job can go back to each step up to the durable one; 0: it has no stream of
 * steps. */
uint64_t pd_checkpoint_policy_unbroken(const pd_job *job);
/* Makes a checkpoint due at the next step, because the WAL cannot hold what has changed. */
void pd_checkpoint_policy_soon(pd_job *job);
/* Makes a checkpoint due at once, at the job's present step, because the state has changed without a step. */
void pd_checkpoint_policy_now(pd_job *job);
/* Returns the smallest window of the connected ranks: the number of steps that each of them can send again. 0: no rank
 * has a window. */
uint32_t pd_checkpoint_policy_window(const pd_job *job);
/* Reports to the loop thread which steps of the job are durable, and which its mirror has, if any step is durable. If
 * out of memory, the report comes with the next checkpoint. */
void pd_checkpoint_policy_tell(pd_job *job);
/* The same, in the memory of a request, which it takes over: so it cannot fail. The report comes after those of steps
 * that are withheld (step/withheld.h). */
void pd_checkpoint_policy_answer(pd_job *job, pd_request *request);
/* Returns true if the job has checkpoints, and a stop of the server now would lose closed steps or other changes of its
 * state. */
bool pd_checkpoint_policy_loses(const pd_job *job);
/* Logs as an error that the job's last checkpoint before the server stops has failed (`why`), which steps the stop will
 * lose, and what to do. */
void pd_checkpoint_policy_say_lost(const pd_job *job, const pd_error *why);
/* Tells the checkpoint writer that the job has ended, so that a restart does not bring it back. */
void pd_checkpoint_policy_end(pd_job *job);

/* Returns the bytes that a parameter with this plan takes in a checkpoint. */
uint64_t pd_outrun_bytes(const pd_plan *plan);
/* Stores the bytes of one checkpoint and of one WAL record of the job, and logs how long the disk takes to write each.
 * Does nothing if the job has no checkpoints, or if the speed of the disk is not known. */
void pd_outrun_begin(pd_job *job, uint64_t checkpoint_bytes, uint64_t entry_bytes);
/* Logs a warning, once, if the disk takes longer to write a checkpoint than the job to reach the next one, or if
 * writing the WAL's records takes more than half of the disk's time. Call it when a checkpoint begins: then the speed
 * of the job is known. */
void pd_outrun_look(pd_job *job, uint64_t now_ns);

#endif
