/* control_log.h - the control log of a job: hands the records of control.h to the WAL thread, and reads them at the
 * start. Step thread.
 *
 * A job with checkpoints has a control log on the disk (base/wal_record.h: control). Records are written in entries,
 * one of which is under way at a time: those that are made meanwhile go into the next one. No step waits for that. An
 * operator who sets values is answered when the disk has them (job/control_keeping.h).
 *
 * Records follow a checkpoint. Entries from before its cut are not needed any more when it is durable, and the journal
 * thread uses their files again. After an error of the disk, or a change that no record can tell (an import, another
 * world_size), records end. They begin again after the next cut. When its checkpoint is durable, an entry, which may
 * have no records, begins a new chain: nothing before it counts any more. If the job repeats steps then, this entry has
 * the records of the steps that are still to be repeated.
 *
 * Each entry says after which checkpoint it was written. A job that comes back from an older one has a past in which
 * some records are missing, so it uses none. */
#ifndef PD_CONTROL_LOG_H
#define PD_CONTROL_LOG_H

#include "jobs.h"

/* Hands records over, if there are some. Call it after each batch of the job's work, and after each command. */
void pd_control_look(pd_job *job);
/* Takes an entry back from the WAL thread. `record` is borrowed. */
void pd_control_returned(pd_job *job, const pd_wal_record *record);

/* ---- checkpoints ---- */

/* Notes that the head of a checkpoint was written: the checkpoint has everything up to here. */
void pd_control_headed(pd_job *job);
/* Notes that this checkpoint is durable (`good`), or was given up. */
void pd_control_kept(pd_job *job, bool good);

/* ---- the start ---- */

/* Lets records follow the checkpoint from which the job has just come back. */
void pd_control_restored(pd_job *job);
/* Reads an entry: its records are for steps that the job will repeat. After an error the job has no records, and the
 * log does not count. PD_FAILED_PRECONDITION: the entry follows a later checkpoint than the one from which the job has
 * come back. PD_NOT_FOUND: there is no such job. PD_DATA_LOSS, PD_NO_MEMORY. */
int pd_control_load(pd_jobs *jobs, const pd_wal_record *record, pd_error *err);

#endif
