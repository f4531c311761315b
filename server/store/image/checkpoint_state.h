/* checkpoint_state.h - the state of the checkpoint that is being made of a job; answers requests for a checkpoint,
 * tries a failed checkpoint again, and pauses a job until a checkpoint is durable. Step thread.
 *
 * After a failed checkpoint, a job that trains tries again at the next multiple of checkpoint_every. Some jobs close no
 * step: paused ones, those without a connected worker, and those whose last checkpoint before the server stops has
 * failed. Such a job tries again after a second, then after twice as long each time, at most a minute.
 *
 * A job with on_disk_error = pause pauses while its steps cannot become durable: its parameters finish the largest step
 * that any of them has begun, and begin no further step. Rounds may collect contributions meanwhile. */
#ifndef PD_CHECKPOINT_STATE_H
#define PD_CHECKPOINT_STATE_H

#include "archive.h"
#include "job.h"

/* The progress of copying one parameter into a checkpoint. */
typedef struct pd_checkpoint_part {
    bool chosen; /* the parameter is copied, or is being copied */
    /* the open archive of a parameter that is copied except for results of preconditioner tasks; NULL: it is complete,
     * or not begun */
    pd_archive *archive;
    size_t awaited; /* number of results of preconditioner tasks that are missing */
} pd_checkpoint_part;

/* The checkpoint that is being made (job->checkpointing.making). The step thread owns it. */
typedef struct pd_checkpoint {
    pd_checkpoint_image *image;
    pd_effect *effect; /* hands `image` to the checkpoint writer at the end; allocated at the beginning */
    uint64_t until_ns; /* time (ns) by which all parameters must have reached the step of the cut */
    bool last;         /* the server drains, so parameters are taken at the steps that they have */
    bool headed;       /* all parameters are quiesced and the header is written, so parameters can be copied */
    bool cut_ended;    /* the cut has ended: no parameter is quiesced for this checkpoint */
    bool failed;       /* a result of a preconditioner task could not be added; `error` says why */
    pd_error error;
    uint32_t copied, open;      /* number of copied parameters; how many of them still lack results of tasks */
    uint32_t at;                /* all parameters before this index are chosen (pd_checkpoint_part) */
    uint32_t states_at;         /* rank whose worker state is copied next, after all parameters are complete */
    pd_checkpoint_part parts[]; /* one for each parameter */
} pd_checkpoint;

/* Answers a request for a checkpoint: an operator's with the step of the newest one, by which its directory is named, a
 * worker's with the durable step. `bytes` and `ns` are the size and the writing time
 * of the checkpoint that was written for it; 0: an earlier checkpoint sufficed. Takes ownership of the request. */
void pd_checkpoint_answer(pd_job *job, pd_request *request, uint64_t bytes, uint64_t ns);
/* Refuses a request for a checkpoint. If it was an Import, the error says that the state is in force. Takes ownership
 * of the request. */
void pd_checkpoint_refuse(pd_job *job, pd_request *request, const pd_error *err);
/* Returns whether that step is the one that a request asks for, or a later one, and whether the newest durable
 * checkpoint contains all changes that were made before the request by other means than steps, such as an import or
 * replaced weights. */
bool pd_checkpoint_suffices(const pd_job *job, const pd_request *request);
/* Answers the requests for which the job's checkpoints suffice now that one was written, of this size and in this
 * time. */
void pd_checkpoint_answer_all(pd_job *job, uint64_t bytes, uint64_t ns);
/* Answers the requests of workers that wait for a step that is durable now. Call it when a record has made a step
 * durable. */
void pd_checkpoint_answer_workers(pd_job *job);
/* Lets a draining server stop waiting for the job's last checkpoint, if that is the checkpoint that has just ended.
 * Call it when a checkpoint is durable or has failed. */
void pd_checkpoint_ended(pd_job *job);
/* Counts a checkpoint of step `step` that could not be made or written, stores the error for status reports, and calls
 * pd_checkpoint_ended. Refuses the requests that wait for a checkpoint of this step or an earlier one with *err. */
void pd_checkpoint_failed(pd_job *job, uint64_t step, const pd_error *err);

/* Returns whether a checkpoint should begin now because an earlier one has failed and no step will make one due, or
 * because answers wait for leases that no record has. */
bool pd_retry_wants_checkpoint(const pd_job *job, uint64_t now_ns);
/* Sets the time of the attempt after this one. Call it when a checkpoint begins. */
void pd_retry_tried(pd_job *job, uint64_t now_ns);
/* Lets the next attempt begin at once. Call it when a checkpoint is durable. */
void pd_retry_end(pd_job *job);
/* Returns whether a failed checkpoint is tried again at a time, because the job closes no steps, or answers wait for
 * leases that no record has. Otherwise it is tried again at the next multiple of checkpoint_every. */
bool pd_retry_is_by_time(const pd_job *job);
/* Returns the time (ns) of the next attempt; UINT64_MAX: no attempt is due at a time. */
uint64_t pd_retry_next_tick(const pd_job *job);

/* Pauses the job and logs it, if on_disk_error is pause and its WAL records no steps. Does nothing if the job is paused
 * already. */
void pd_pause_begin(pd_job *job);
/* Lets a paused job continue. Does nothing if the job is not paused. */
void pd_pause_end(pd_job *job);

#endif
