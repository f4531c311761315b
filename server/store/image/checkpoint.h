/* checkpoint.h - makes a checkpoint of a job while the job trains, and hands it to the checkpoint writer. Step thread.
 *
 * A checkpoint begins with a consistent cut (consistent_cut.h) at some step S. A parameter that has closed step S is
 * quiesced: it may collect contributions, but takes no further step. When all parameters have closed step S, the header
 * of the image is written. Then the state of each parameter is copied, in parts of bounded time, and the parameter
 * continues. Weights are not copied: the checkpoint refers to their published versions.
 *
 * The results of preconditioner tasks that are under way at the cut belong to the state, too. The parameter does not
 * wait for these tasks, but the checkpoint does: it adds each result when the task returns. The complete checkpoint
 * goes to the checkpoint writer (PD_EFF_WRITE_CHECKPOINT), which writes it to the disk and sends it back
 * (PD_REQ_CHECKPOINT_WRITTEN).
 *
 * If a parameter does not reach step S in time, the checkpoint takes each parameter at the step that it has, provided
 * that no step is under way. A job has at most one checkpoint under way. If a checkpoint cannot be made, the reason is
 * logged, and the job continues. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include "job.h"

/* Begins a checkpoint at step `step`. The job must have no checkpoint under way. `last`: the server drains, and this is
 * the job's last checkpoint. */
void pd_checkpoint_begin(pd_job *job, uint64_t step, bool last, uint64_t now_ns);
/* Advances the checkpoint that is being made: writes the header when the parameters are quiesced, hands the checkpoint
 * to the checkpoint writer when it is complete, or gives it up after an error. */
void pd_checkpoint_go_on(pd_job *job, uint64_t now_ns);
/* Makes an empty checkpoint of the job: with the names and shapes of its parameters, and room for worker states.
 * PD_NO_MEMORY: the caller frees what *out is then (pd_checkpoint_image_free). */
int pd_checkpoint_image_of(pd_checkpoint_image **out, const pd_job *job);
/* Fills *err with what the checkpoint that is being made waits for: a parameter and the ranks that it misses, or the
 * number of preconditioner tasks. */
void pd_checkpoint_describe_lag(const pd_job *job, pd_error *err);
/* Takes the memory of the large parameter states out of `image`, which the checkpoint writer has returned, and keeps it
 * for the copies of the next checkpoint. */
void pd_checkpoint_spare(pd_job *job, pd_checkpoint_image *image);
/* Drops the references of a checkpoint to published versions, so that their memory can be freed. */
void pd_checkpoint_image_drop_weights(pd_checkpoint_image *image);
/* Returns whether pd_checkpoint_work has something to copy: states of parameters, or worker states. */
bool pd_checkpoint_has_work(const pd_job *job);
/* Copies states of parameters and worker states, for about half of the time of a batch. */
void pd_checkpoint_work(pd_job *job, uint64_t now_ns);
/* Adds the result of `task`, a preconditioner task of the parameter with the index `param`, to the checkpoint that is
 * being made, if the checkpoint waits for it. Call it before the task is delivered to its optimizer. */
void pd_checkpoint_task(pd_job *job, uint32_t param, struct pd_task *task);
/* Gives up the checkpoint that is being made, and refuses all requests for a checkpoint with `err`. Call it when the
 * job ends. */
void pd_checkpoint_release(pd_job *job, const pd_error *err);

#endif
