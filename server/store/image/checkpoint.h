/* checkpoint.h - makes checkpoints of a job while it trains, and takes them back from the checkpoint writer. Step
 * thread.
 *
 * A checkpoint begins with a cut (consistent_cut.h) at some step S. Parameters that have closed step S rest: they may
 * collect contributions, but take no further step. When all have closed it, the header of the image is written. Then
 * each parameter's state is copied, in slices of bounded time, and the parameter continues. Weights are not copied: the
 * checkpoint refers to their published versions, which nobody changes.
 *
 * Preconditioner tasks that are at the preconditioner pool meanwhile belong to the state, too. The parameter does not
 * wait for them, but the checkpoint does: their results are added when they return. Then the checkpoint goes to the
 * checkpoint writer (PD_EFF_WRITE_CHECKPOINT), which writes it to the disk and sends it back
 * (PD_REQ_CHECKPOINT_WRITTEN).
 *
 * If some parameter does not reach step S in time, each parameter is taken at the step that it has, provided that no
 * step is under way. A job has one checkpoint under way at a time. A checkpoint that cannot be made is given up with a
 * line in the log, and the job continues. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include "job.h"

/* Begins a checkpoint at this step. The job must have none under way. */
void pd_checkpoint_begin(pd_job *job, uint64_t step, bool last, uint64_t now_ns);
/* Does the next thing for the checkpoint that is being made, if it can be done now. */
void pd_checkpoint_go_on(pd_job *job, uint64_t now_ns);
/* Writes the error for a checkpoint that waits for parameters or for preconditioner tasks: for which ones, and for
 * which ranks. */
void pd_checkpoint_describe_lag(const pd_job *job, pd_error *err);
/* Takes the memory of the copies from a checkpoint that has returned, for the next one. */
void pd_checkpoint_spare(pd_job *job, pd_checkpoint_image *image);
/* Drops the references to published versions that a checkpoint has. */
void pd_checkpoint_image_drop_weights(pd_checkpoint_image *image);
/* Returns whether parameters can be copied now. */
bool pd_checkpoint_has_work(const pd_job *job);
/* Copies parameters for about half of the time of a batch of work. */
void pd_checkpoint_work(pd_job *job, uint64_t now_ns);
/* Takes the result of a preconditioner task that has returned, if the checkpoint waits for it. Call it before the task
 * is delivered to its optimizer. */
void pd_checkpoint_task(pd_job *job, uint32_t param, struct pd_task *task);
/* Gives up the checkpoint that is being made, and refuses requests that wait for one with `err`, because the job
 * ends. */
void pd_checkpoint_release(pd_job *job, const pd_error *err);

#endif
