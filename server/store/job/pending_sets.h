/* pending_sets.h - holds commands that have set overrides, and answers each when its values are durable; and Leaves,
 * which are answered when the disk has them. Step thread.
 *
 * The values become durable with a record in the stream of decisions (image/wal_records.h) or with a checkpoint. A
 * Leave waits for a record only: if the disk fails, or is too slow, the worker may go all the same. */
#ifndef PD_PENDING_SETS_H
#define PD_PENDING_SETS_H

#include "job.h"

/* Returns whether the job writes its decisions to the WAL at present. */
bool pd_wal_records_decisions(const pd_job *job);
/* Answers a command that has set values, and has the result, or a Leave. If the job has no durable checkpoint, answers
 * at once. Otherwise answers when the request's record, or a checkpoint with the values, is durable. `recorded` true: a
 * record of the request will be written. false: asks for a checkpoint at the next step; a Leave is answered at once.
 * After 10 s the answer to a command is an error: the values are in force, but a stop of the server may lose them.
 * Takes ownership of the request. */
void pd_sets_answer(pd_job *job, pd_request *request, bool recorded, uint64_t now_ns);

/* Answers the commands whose records have numbers up to `number`: these records are durable now. */
void pd_sets_recorded(pd_job *job, uint64_t number);
/* Marks all waiting commands: the checkpoint that is being made has their values. */
void pd_sets_copied(pd_job *job);
/* Handles the end of a checkpoint. `good` true: it is durable, and the commands whose values it has are answered.
 * false: it has failed, and they wait on. */
void pd_sets_settle(pd_job *job, bool good);
/* Stores that record `number` will have the commands that have no record yet. */
void pd_sets_number(pd_job *job, uint64_t number);
/* Handles the loss of all records after `number`: their commands wait for a checkpoint instead. */
void pd_sets_lost(pd_job *job, uint64_t number);
/* Handles the loss of record `number` alone, in the same way. */
void pd_sets_lost_record(pd_job *job, uint64_t number);
/* Moves the waiting commands from a job to the job that replaces it. They wait for the first checkpoint of the new
 * job. */
void pd_sets_move(pd_job *to, pd_job *from);
/* Refuses all waiting commands with `err`, because the job ends, and answers Leaves. */
void pd_sets_refuse_all(pd_job *job, const pd_error *err);

/* pd_sets_next_tick returns the time at which the oldest command must be refused; UINT64_MAX: none waits. pd_sets_tick
 * refuses the commands that have waited for 10 s. */
uint64_t pd_sets_next_tick(const pd_job *job);
void pd_sets_tick(pd_job *job, uint64_t now_ns);

#endif
