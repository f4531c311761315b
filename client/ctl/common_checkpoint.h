/* common_checkpoint.h - makes the daemons of a cluster write checkpoints of the same step of a job. */
#ifndef PD_COMMON_CHECKPOINT_H
#define PD_COMMON_CHECKPOINT_H

#include "ask_all.h"

/* The checkpoints that daemons have made of a job. */
typedef struct pd_checkpoints_made {
    /* The lowest and the highest one of their steps. They are equal, unless not every rank counts in each step. */
    uint64_t least, most;
    uint64_t bytes, ms; /* the sum of their bytes; the longest time that writing took */
} pd_checkpoints_made;

/* Asks all daemons for a checkpoint of a job, and waits until it is on their disks. Where all ranks count in each step,
 * all checkpoints have the same step: request->step, or a later one if the job is past it. PD_ABORTED: the job is too
 * fast for that, and request->step, the least step, must be chosen further ahead. Changes request->step. */
int pd_common_checkpoint(pd_cluster *cluster, Paramd__CheckpointRequest *request, pd_checkpoints_made *all,
                         pd_error *err);

#endif
