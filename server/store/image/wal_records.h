/* wal_records.h - makes the records of a job's WAL, hands them to the WAL thread, and takes them back. Step thread.
 *
 * Both streams of a WAL follow a checkpoint. The stream of steps has a record of each step after the checkpoint's cut.
 * These records are handed to the WAL thread once the checkpoint is durable; until then up to PD_WAL_MOST of them wait
 * here. A durable record makes its step durable.
 *
 * The stream of decisions has all decisions since the header of the checkpoint was written. They are handed over once
 * the checkpoint is durable. One record of decisions is under way at a time; decisions that are made meanwhile go into
 * the next record. No step waits for these records. But a command that sets values is answered when the disk has its
 * decision (job/pending_sets.h).
 *
 * A durable checkpoint makes the records before it obsolete; in a cluster those before the oldest checkpoint to which
 * all shards may have to go back (pd_step_stream.oldest). A stream ends when a record cannot be made or written, or
 * when something other than a step changes the state. Then the job continues, a checkpoint begins, and after it the
 * stream begins a new chain. If the job is repeating steps then, the first record of decisions also contains the
 * decisions of the steps that are still to be repeated.
 *
 * In a cluster the records that a stream of steps leaves when it ends lead to steps that can be the last ones that all
 * shards have: another shard can lose its later steps. A new chain would replace them. So the stream begins anew only
 * with a checkpoint that is made when the floor of checkpoints (pd_checkpoint_policy.floor) is after these records.
 * Until then checkpoints alone make steps durable, and the job can go back to them and to steps of the records. After
 * an Import these are steps from before it, to which a shard that was killed meanwhile can have come back. The step of
 * the Import itself is that of its checkpoint once this is durable. */
#ifndef PD_WAL_RECORDS_H
#define PD_WAL_RECORDS_H

#include "jobs.h"

/* Makes a record of the present step if all parameters of its fragment have closed it, and a record of the decisions
 * that wait. Call it after each batch of the job's work. */
void pd_wal_look(pd_job *job);
/* Makes a record of the decisions that wait. Call it after a command. */
void pd_wal_look_decisions(pd_job *job);
/* Takes a record back from the WAL thread (PD_REQ_WAL). `job` is its job; NULL: the job has ended. Takes ownership of
 * the request. */
void pd_wal_returned(pd_job *job, pd_request *request);
/* Returns the aggregates of a record to their pools, and frees the record. Accepts NULL. */
void pd_wal_record_drop(pd_wal_record *record);

/* Begins to record the steps and decisions that follow a checkpoint. Call it when the checkpoint's header was written.
 * `even`: all parameters have closed their step of its cut, and none has begun the next step; only then are steps
 * recorded. */
void pd_wal_copied(pd_job *job, bool even);
/* Tells both streams that the checkpoint under way is durable (`good`), or was given up. If it is durable, the
 * records that wait for it are handed over. Otherwise a stream that waits for it ends. */
void pd_wal_checkpointed(pd_job *job, bool good);
/* Returns whether a checkpoint should begin now because the stream of steps cannot begin without it. */
bool pd_wal_wants_checkpoint(const pd_job *job);

/* Begins to record the steps and decisions after the newest checkpoint, from which the job was just restored. `even`:
 * the parameters of each fragment are all at one step; only then are steps recorded. `oldest`: the WAL has records from
 * there on to the checkpoint; `ended`: to this place alone, if it is not 0 (pd_checkpoint_image.oldest_record). */
void pd_wal_restored(pd_job *job, bool even, uint64_t oldest, uint64_t ended);
/* Continues the stream of steps after its records up to the one at `place` were replayed. */
void pd_wal_resume(pd_job *job, uint64_t place);

/* Ends the stream of steps because the disk does not respond, so that the job can continue. The stream begins anew
 * after all records under way have returned and another checkpoint is durable. Does nothing if no steps are
 * recorded. */
void pd_wal_leave(pd_job *job);
/* Lets the job answer what the disk does not have, because it does not respond, or has failed: from now on until the
 * next durable checkpoint. Does nothing if on_disk_error is not go_on, or if no report waits for the disk
 * (withheld.h). */
void pd_wal_answer_anyway(pd_job *job);
/* Drops the records that wait, and refuses the commands that wait with *err. Call it when the job ends. */
void pd_wal_release(pd_job *job, const pd_error *err);

#endif
