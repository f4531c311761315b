/* restore.h - makes a job from a checkpoint that was read from the disk. Step thread. */
#ifndef PD_RESTORE_H
#define PD_RESTORE_H

#include "jobs.h"
#include "checkpoint_image.h"

/* Makes a job from a checkpoint and puts it into the table of jobs, as pd_image_read does from an image: the same
 * errors, and every byte is checked. PD_DATA_LOSS is also returned if the parts of the checkpoint do not fit together,
 * such as the names of the parameters in the head and in the list. The checkpoint is borrowed for the call. */
int pd_restore(pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *kept, uint64_t now_ns, pd_error *err);

#endif
