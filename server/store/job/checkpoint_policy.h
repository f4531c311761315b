/* checkpoint_policy.h - decides whether a job has checkpoints, and at which steps; and compares what it writes with the
 * speed of the disk (pd_store_config.disk_speed). Step thread.
 *
 * The checkpoints themselves are made in store/image (checkpoint.h). */
#ifndef PD_CHECKPOINT_POLICY_H
#define PD_CHECKPOINT_POLICY_H

#include "job.h"

/* Decides whether the job has checkpoints, after its configuration was read. PD_FAILED_PRECONDITION: it must have some,
 * but the server has no directory for them. PD_NO_MEMORY. */
int pd_checkpoint_policy_begin(pd_job *job, pd_error *err);
/* Computes at which step the next checkpoint is due. Call it after a checkpoint has begun or was skipped, and when
 * ranks have come or gone: at least every half of the smallest window of connected ranks there is a checkpoint. */
void pd_checkpoint_policy_plan(pd_job *job);
/* Lets a checkpoint begin at the next step, because no log can tell what has changed. */
void pd_checkpoint_policy_soon(pd_job *job);
/* Lets a checkpoint begin at once, of the step at which the job is: its state has changed otherwise than by a step. */
void pd_checkpoint_policy_now(pd_job *job);
/* Returns the smallest window of the connected ranks: the number of steps that each of them can send again. 0: no rank
 * has a window. */
uint32_t pd_checkpoint_policy_window(const pd_job *job);
/* Reports to the loop thread which steps of the job are durable, if any are. Without memory it is reported with the
 * next checkpoint. */
void pd_checkpoint_policy_tell(pd_job *job);
/* Returns whether a stop of the server now would lose steps of the job, which workers know as closed, or other changes
 * of its state: a job with checkpoints that has closed steps since the durable one. */
bool pd_checkpoint_policy_loses(const pd_job *job);
/* Logs as an error that the job's last checkpoint before the server stops has failed, and why: which steps the stop
 * will lose, and what to do. */
void pd_checkpoint_policy_say_lost(const pd_job *job, const pd_error *why);
/* Tells the checkpoint writer that the job has ended, so that a restart does not bring it back. */
void pd_checkpoint_policy_end(pd_job *job);

/* Returns the bytes that a parameter with this plan has in a checkpoint. */
uint64_t pd_outrun_bytes(const pd_plan *plan);
/* Notes how many bytes a checkpoint of the job has, and an entry of its log, and logs how long the disk takes for them.
 * Does nothing if the job has no checkpoints, or if the speed of the disk is not known. */
void pd_outrun_begin(pd_job *job, uint64_t checkpoint_bytes, uint64_t entry_bytes);
/* Logs a warning, once, if the disk takes longer for a checkpoint than the job for the steps between two, or if entries
 * take more than half of the disk. Called when a checkpoint begins: then the speed of the job is known. */
void pd_outrun_look(pd_job *job, uint64_t now_ns);

#endif
