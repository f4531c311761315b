/* restore.h - makes a job from a checkpoint. Step thread.
 *
 *     pd_restore_begin    plans the job, and claims its memory
 *     pd_restore_some     reads states and weights, until it returns true
 *     pd_restore_replay   repeats a step from a record of the WAL, if the job goes back to a step after the checkpoint,
 *                         until it returns true
 *     pd_restore_end      puts the job into the table of jobs
 *
 * After an error call pd_restore_abandon, unless the function has freed the pd_restoring. The errors are those of
 * pd_image_read (image.h). Every byte is checked. PD_DATA_LOSS also if the header and the parameters of the checkpoint
 * do not fit together. The checkpoint is borrowed until the end. */
#ifndef PD_RESTORE_H
#define PD_RESTORE_H

#include "checkpoint_image.h"
#include "jobs.h"

/* A job that is being made from a checkpoint. It is in no table of jobs. */
typedef struct pd_restoring pd_restoring;

/* Makes the job from the header of the checkpoint, with the number after the last one of `jobs`. No job may have its
 * name. After an error nothing has changed. */
int pd_restore_begin(pd_restoring **out, const pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image,
                     pd_error *err);
/* Reads states and weights for about `budget_ns` (ns of one core, by estimate), but at least one part: the state of a
 * parameter, or 16 MiB of weights. Returns whether all were read, or *rc is an error. */
bool pd_restore_some(pd_restoring *r, double budget_ns, int *rc, pd_error *err);
/* Repeats the next step, after everything was read, as pd_wal_repeat_some does: call it with the same record until it
 * returns true. */
bool pd_restore_replay(pd_restoring *r, const pd_wal_record *record, double budget_ns, uint64_t now_ns, int *rc,
                       pd_error *err);
/* Puts the job into the table of jobs, and frees r, also after an error. */
int pd_restore_end(pd_restoring *r, pd_jobs *jobs, uint64_t now_ns, pd_job **out, pd_error *err);
/* Frees r with the job. Accepts NULL. */
void pd_restore_abandon(pd_restoring *r);

/* Makes a job from a checkpoint and puts it into the table of jobs, at once. After an error nothing has changed. */
int pd_restore(pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image, uint64_t now_ns, pd_error *err);

#endif
