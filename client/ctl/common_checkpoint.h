/* common_checkpoint.h - makes the daemons of a cluster write checkpoints of the same step of a job. */
#ifndef PD_COMMON_CHECKPOINT_H
#define PD_COMMON_CHECKPOINT_H

#include "ask_all.h"

/* Asks all daemons for a checkpoint of a job, and waits until it is on their disks. *all gets its step, the sum of its
 * bytes, and the longest time that writing took. With several daemons all checkpoints have the same step:
 * request->step, or a later one if the job is past it. PD_ABORTED: the job is too fast for that, and request->step, the
 * least step, must be chosen further ahead. Changes request->step. */
int pd_common_checkpoint(pd_cluster *cluster, Paramd__CheckpointRequest *request, Paramd__CheckpointReply *all,
                         pd_error *err);

#endif
