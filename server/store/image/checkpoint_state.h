/* checkpoint_state.h - the record of the checkpoint that is being made of a job. Step thread. */
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
    pd_checkpoint_image *kept;
    pd_effect *effect; /* will hand the checkpoint to the checkpoint writer; allocated in advance, so it cannot fail */
    uint64_t until_ns; /* time by which all parameters must have reached the step of the cut */
    bool last;         /* the server drains: parameters are taken at the steps that they have */
    bool headed;       /* all parameters are at rest, and the head is written: parameters can be copied */
    bool cut_ended;    /* no parameter rests for this checkpoint any more */
    bool failed;       /* a result of a preconditioner task could not be added, because of `error` */
    pd_error error;
    uint32_t copied, open; /* number of parameters that are copied; that wait for results of preconditioner tasks */
    uint32_t at;           /* number of the first parameter that may not be chosen yet */
    uint32_t notes_at;     /* rank whose note is copied next, when all parameters are complete */
    pd_checkpoint_part parts[];
} pd_checkpoint;

#endif
