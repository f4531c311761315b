/* wal_replay.h - replays the records of a job's WAL when the daemon starts, after the job was restored from a
 * checkpoint. Runs on the step thread, or on the thread that starts it. */
#ifndef PD_WAL_REPLAY_H
#define PD_WAL_REPLAY_H

#include "jobs.h"
#include "wal_record.h"

/* Replays one record of the WAL of a job that was restored from a checkpoint (image.h) and has no workers yet. Call it
 * with all records of steps first, then with the records of decisions. The record is borrowed for the call.
 *
 * A record of a step repeats the step: the optimizers run again with the recorded inputs, and compute the same bits.
 * Each parameter must be at the step before, or at the step of the record already if the checkpoint has its parameters
 * at different steps. A record of decisions gives decisions to the job for steps that it will take again; they must
 * follow the checkpoint from which the job was restored.
 *
 * PD_NOT_FOUND: there is no such job. PD_DATA_LOSS, PD_INVALID_ARGUMENT, PD_UNIMPLEMENTED: the record does not fit the
 * job, or the repeated step differs from the recorded one. PD_FAILED_PRECONDITION: the decisions follow a later
 * checkpoint. PD_NO_MEMORY. After an error of a record of a step, *unchanged says whether the job is unchanged. If
 * *unchanged is false, the job was dropped, because the step was half done: the caller must restore it from its
 * checkpoint again, and replay the records before this one. After an error of a record of decisions the job has no
 * decisions to repeat. */
int pd_wal_replay(pd_jobs *jobs, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err);

/* A step of a job that is repeated in parts, while the job is in no table of jobs. */
typedef struct pd_wal_repeat pd_wal_repeat;

/* Begins to repeat the step of a record, which is borrowed until the end. The errors are those of pd_wal_replay; after
 * one *out is NULL, and the job is unchanged. */
int pd_wal_repeat_begin(pd_wal_repeat **out, pd_job *job, const pd_wal_record *record, pd_error *err);
/* Works for about budget_ns nanoseconds of the step thread, by estimate, but does at least one part: the step of one
 * parameter as far as it can run, or one preconditioner task. Returns false if there is more to do. When it returns
 * true, *rc is PD_OK or an error, after which the job must not be used. */
bool pd_wal_repeat_some(pd_wal_repeat *repeat, double budget_ns, uint64_t now_ns, int *rc, pd_error *err);
void pd_wal_repeat_free(pd_wal_repeat *repeat); /* accepts NULL; also before the step is repeated */

#endif
