/* logging.h - makes the entries of a job's log, hands them to the WAL thread, and takes them back. Step thread.
 *
 * Entries follow a checkpoint: they are made from the step on that comes after its cut, and are handed over once it is
 * durable. Until then up to PD_WAL_MOST of them wait here. An entry that is on the disk makes its step durable.
 *
 * When an entry cannot be made or written, or the state changes otherwise than by a step, the entries stop. The job
 * goes on, a checkpoint is begun at once, and entries begin anew after it. */
#ifndef PD_LOGGING_H
#define PD_LOGGING_H

#include "job.h"

/* Begins to make entries for the steps after the checkpoint of step `base`. All parameters must have closed this step,
 * and none may have begun the next one. Does nothing if the job has no log, or its entries are being made already. */
void pd_logging_begin(pd_job *job, uint64_t base);
/* Goes on with the entries after those that were read from the log, up to step `step`, to which the job has come
 * back. */
void pd_logging_resume(pd_job *job, uint64_t step);
/* Makes the entry of the present step, if all parameters have closed it. Call it after each batch of the job's work. */
void pd_logging_look(pd_job *job);
/* Returns whether a checkpoint should be begun now, so that entries can begin. */
bool pd_logging_wants_checkpoint(const pd_job *job);
/* Hands entries over that have waited for a checkpoint, which is durable now. */
void pd_logging_kept(pd_job *job);
/* Stops the entries if they were to follow the checkpoint of this step, which has failed. */
void pd_logging_not_kept(pd_job *job, uint64_t step);
/* Takes an entry back from the WAL thread (PD_REQ_WAL). `job` is the job that it is of; NULL: this job has
 * ended. Takes ownership of the request. */
void pd_logging_returned(pd_job *job, pd_request *request);
/* Stops the entries because the disk does not answer, and lets the job go on. Entries begin anew after a checkpoint,
 * when the disk has given back those that it has. Does nothing if no entries are made. */
void pd_logging_leave(pd_job *job);
/* Gives up entries that wait, because the job ends. */
void pd_logging_release(pd_job *job);
/* Returns the aggregates of an entry to their pools, and frees the entry. Accepts NULL. */
void pd_logging_drop(pd_wal_record *record);

#endif
