/* wal_replay.h - restores what a job did after its checkpoint, from the records of its WAL, when the daemon starts.
 * Step thread, or the thread that starts it. */
#ifndef PD_WAL_REPLAY_H
#define PD_WAL_REPLAY_H

#include "jobs.h"
#include "wal_record.h"

/* Takes a record of the WAL of a job that was restored from a checkpoint (image.h), before any worker has come. Call it
 * with all records of steps first, then with those of decisions. The record is borrowed for the call.
 *
 * A step is repeated: the optimizers run again with the recorded inputs, and make the same bits. Each parameter must be
 * at the step before, or at the step of the record if the checkpoint was uneven. Decisions are for steps that the job
 * will take again; they must follow the checkpoint from which it was restored.
 *
 * PD_NOT_FOUND: there is no such job. PD_DATA_LOSS, PD_INVALID_ARGUMENT, PD_UNIMPLEMENTED: the record does not fit the
 * job, or the step differs from the recorded one. PD_FAILED_PRECONDITION: decisions follow a later checkpoint.
 * PD_NO_MEMORY. After an error of a step *unchanged says whether the job is unchanged. If it is false, the job may be
 * in the midst of the step, and has been taken off the table of jobs: it must be restored from its checkpoint again,
 * and the records before this one replayed. After an error of decisions the job has none. */
int pd_wal_replay(pd_jobs *jobs, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err);

#endif
