/* wal_replay.h - repeats a step of a job from its log, when the daemon starts: the optimizers run again with the inputs
 * that the entry has, and make the same bits. Step thread, or the thread that starts it. */
#ifndef PD_WAL_REPLAY_H
#define PD_WAL_REPLAY_H

#include "jobs.h"
#include "wal_record.h"

/* Repeats the step of an entry. The job was restored from a checkpoint (image.h) and no worker has come yet; each
 * parameter must be at the step before, or at the step of the entry if its checkpoint was uneven. The entry is borrowed
 * for the call.
 *
 * PD_NOT_FOUND: there is no such job. PD_DATA_LOSS, PD_INVALID_ARGUMENT, PD_UNIMPLEMENTED: the entry does not fit the
 * job, or the step takes another course than it took. PD_NO_MEMORY. After an error *kept says whether the job is
 * unchanged. If it is false, the job may be in the midst of the step, and has been taken off the table of jobs: it must
 * be restored from its checkpoint again, and the entries before this one repeated. */
int pd_replay(pd_jobs *jobs, const pd_wal_record *record, uint64_t now_ns, bool *kept, pd_error *err);

#endif
