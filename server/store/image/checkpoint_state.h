/* checkpoint_state.h - the record of the checkpoint that is being made of a job, who has asked for one, when it is
 * tried again, and whether the job pauses until one is durable. Step thread.
 *
 * A job that trains tries a checkpoint that has failed again at the next multiple of checkpoint_every. A job that is
 * paused, whose workers have all gone, or whose last checkpoint before the server stops has failed, closes no step. It
 * tries again after a second, and less and less often, at last once a minute.
 *
 * A job with on_disk_error = pause pauses while its steps cannot become durable: it finishes the step that any of its
 * parameters has begun, and begins no other one. Rounds may collect contributions meanwhile. */
#ifndef PD_CHECKPOINT_STATE_H
#define PD_CHECKPOINT_STATE_H

#include "archive.h"
#include "job.h"

typedef struct pd_checkpoint_part {
    bool chosen; /* the parameter is copied, or is being copied */
    /* the archive of a parameter that is copied except for `awaited` results of preconditioner tasks; NULL: no results
     * are missing */
    pd_archive *archive;
    size_t awaited;
} pd_checkpoint_part;

typedef struct pd_checkpoint {
    pd_checkpoint_image *image;
    pd_effect *effect; /* will hand the checkpoint to the checkpoint writer; allocated in advance, so it cannot fail */
    uint64_t until_ns; /* time by which all parameters must have reached the step of the cut */
    bool last;         /* the server drains: parameters are taken at the steps that they have */
    bool headed;       /* all parameters are quiesced, and the header is written: parameters can be copied */
    bool cut_ended;    /* no parameter rests for this checkpoint any more */
    bool failed;       /* a result of a preconditioner task could not be added, because of `error` */
    pd_error error;
    uint32_t copied, open; /* number of parameters that are copied; that wait for results of preconditioner tasks */
    uint32_t at;           /* number of the first parameter that may not be chosen yet */
    uint32_t states_at;    /* rank whose worker state is copied next, when all parameters are complete */
    pd_checkpoint_part parts[];
} pd_checkpoint;

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

/* Returns whether a checkpoint should be begun now, because an earlier one has failed and no step makes one due. */
bool pd_retry_wants_checkpoint(const pd_job *job, uint64_t now_ns);
/* Notes that a checkpoint is begun: the next attempt comes later. */
void pd_retry_tried(pd_job *job, uint64_t now_ns);
/* Notes that a checkpoint is on the disk. */
void pd_retry_end(pd_job *job);
/* Returns whether the next attempt after a failure is due at a time and not at a step. */
bool pd_retry_is_by_time(const pd_job *job);
/* Returns the time of the next attempt; UINT64_MAX: none is due. */
uint64_t pd_retry_next_tick(const pd_job *job);

/* Pauses the job, and logs it, if its configuration says so and its log does not make steps durable. Does nothing if
 * the job is paused. */
void pd_pause_begin(pd_job *job);
/* Lets a paused job continue. Does nothing if the job is not paused. */
void pd_pause_end(pd_job *job);

#endif
