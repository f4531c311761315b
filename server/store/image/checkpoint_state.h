/* checkpoint_state.h - the checkpoint that is being made of a job, for checkpoint.c (makes it) and checkpoint_due.c
 * (decides when, and answers those who asked). Step thread. */
#ifndef PD_CHECKPOINT_STATE_H
#define PD_CHECKPOINT_STATE_H

#include "archive.h"
#include "job.h"

typedef struct pd_checkpoint_part {
    bool copied;
    /* the archive of a parameter that is copied except for `awaited` results of root tasks (computations of matrix
     * roots); NULL: no results are missing */
    pd_archive *archive;
    size_t awaited;
} pd_checkpoint_part;

typedef struct pd_checkpoint {
    pd_kept *kept;
    pd_effect *effect; /* memory for the effect that hands the checkpoint to the keeper thread */
    uint64_t until_ns; /* time by which all parameters must have reached the step of the cut */
    bool last;         /* the server drains: parameters are taken at the steps that they have */
    bool headed;       /* all parameters are at rest, and the head is written: parameters can be copied */
    bool cut_ended;    /* no parameter rests for this checkpoint any more */
    bool failed;       /* a result of a root task could not be added, because of `error` */
    pd_error error;
    uint32_t copied, open; /* number of parameters that are copied; that wait for results of root tasks */
    uint32_t at;           /* number of the first parameter that may not be copied */
    pd_checkpoint_part parts[];
} pd_checkpoint;

/* Begins a checkpoint at this step. The job must have none under way. */
void pd_checkpoint_begin(pd_job *job, uint64_t step, bool last, uint64_t now_ns);
/* Does the next thing for the checkpoint that is being made, if it can be done now. */
void pd_checkpoint_go_on(pd_job *job, uint64_t now_ns);
/* Writes the error for a checkpoint that waits for parameters or for root tasks: for which ones, and for which ranks. */
void pd_checkpoint_describe_lag(const pd_job *job, pd_error *err);
/* Notes that the checkpoint of this step could not be made or written, and refuses those who wait for it. */
void pd_checkpoint_failed(pd_job *job, uint64_t step, const pd_error *err);
/* Drops the references to snapshots (published weights) that a checkpoint has. */
void pd_kept_drop_weights(pd_kept *kept);

#endif
