/* wal_records.h - makes the records of a job's WAL, hands them to the WAL thread, and takes them back. Step thread.
 *
 * Both streams follow a checkpoint. Records of steps are made from the step on that comes after its cut, and are handed
 * over once it is durable. Until then up to PD_WAL_MOST of them wait here. A durable record makes its step durable.
 * Decisions are recorded from the header of the checkpoint on, and handed over once it is durable. One record of them
 * is under way at a time; decisions that are made meanwhile go into the next one. No step waits for them, but an
 * operator who sets values is answered when the disk has them (job/pending_sets.h).
 *
 * Records that a checkpoint makes obsolete are given up when it is durable. When a record cannot be made or written, or
 * the state changes otherwise than by a step, a stream ends. The job continues, a checkpoint is begun, and the stream
 * begins anew after it: nothing before counts. If the job repeats steps then, the first record of decisions has those
 * of the steps that are still to be repeated. */
#ifndef PD_WAL_RECORDS_H
#define PD_WAL_RECORDS_H

#include "jobs.h"

/* Makes the record of the present step, if all parameters have closed it, and that of decisions, if there are some.
 * Call it after each batch of the job's work. */
void pd_wal_look(pd_job *job);
/* Makes the record of decisions alone, after a command. */
void pd_wal_look_decisions(pd_job *job);
/* Takes a record back from the WAL thread (PD_REQ_WAL). `job` is the job that it is of; NULL: this job has ended. Takes
 * ownership of the request. */
void pd_wal_returned(pd_job *job, pd_request *request);
/* Returns the aggregates of a record to their pools, and frees the record. Accepts NULL. */
void pd_wal_record_drop(pd_wal_record *record);

/* Notes that the header of the job's checkpoint was written: the checkpoint has everything up to here. `even`: all
 * parameters have closed the step of its cut, and none has begun the next one, so steps can be recorded after it. */
void pd_wal_copied(pd_job *job, bool even);
/* Notes that the checkpoint of a step is durable (`good`), or was given up. */
void pd_wal_checkpointed(pd_job *job, uint64_t step, bool good);
/* Returns whether a checkpoint should be begun now, so that steps can be recorded. */
bool pd_wal_wants_checkpoint(const pd_job *job);

/* Lets records follow the checkpoint of a step from which the job has just been restored. `even`: as above. */
void pd_wal_restored(pd_job *job, uint64_t step, bool even);
/* Continues with the records after those that were replayed, up to step `step`. */
void pd_wal_resume(pd_job *job, uint64_t step);

/* Stops recording steps because the disk does not respond, and lets the job continue. Records begin anew after a
 * checkpoint, when the disk has returned those that it has. Does nothing if no steps are recorded. */
void pd_wal_leave(pd_job *job);
/* Gives up records that wait, and refuses commands that wait, because the job ends. */
void pd_wal_release(pd_job *job, const pd_error *err);

#endif
