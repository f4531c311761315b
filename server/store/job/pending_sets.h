/* pending_sets.h - the commands that wait until the disk has the values that they have set. Step thread.
 *
 * The values come to the disk with records of decisions, which image/wal_records.h makes, or with a checkpoint. */
#ifndef PD_PENDING_SETS_H
#define PD_PENDING_SETS_H

#include "job.h"

/* Returns whether decisions are recorded: they will come to the disk. */
bool pd_wal_records_decisions(const pd_job *job);
/* Answers a command that has set values, whose request has the result: at once if the job has no durable checkpoint,
 * otherwise when the disk has the command's record, or a checkpoint with the values. `recorded`: there will be a
 * record; otherwise a checkpoint is begun soon. After 10 s the answer is an error which says that the values hold, but
 * may not survive the server. Takes ownership of the request. */
void pd_sets_answer(pd_job *job, pd_request *request, bool recorded, uint64_t now_ns);

/* Answers the commands whose decisions are in records up to this number. */
void pd_sets_recorded(pd_job *job, uint64_t number);
/* Notes that the checkpoint which is being made has the values of all commands so far. */
void pd_sets_copied(pd_job *job);
/* Answers the commands whose values the checkpoint has, which is durable now (`good`). Otherwise they still wait. */
void pd_sets_settle(pd_job *job, bool good);
/* Gives the commands whose decisions wait for a record the number of this record. */
void pd_sets_number(pd_job *job, uint64_t number);
/* Notes that records after this number are lost: the commands wait for a checkpoint. */
void pd_sets_lost(pd_job *job, uint64_t number);
/* Notes that this record alone is lost. */
void pd_sets_lost_record(pd_job *job, uint64_t number);
/* Moves the commands that wait to the job that takes the place of this one. They wait for its first checkpoint. */
void pd_sets_move(pd_job *to, pd_job *from);
/* Refuses all commands that wait, because the job ends. */
void pd_sets_refuse_all(pd_job *job, const pd_error *err);

/* Returns the time at which a command has waited long enough; UINT64_MAX: none waits. */
uint64_t pd_sets_next_tick(const pd_job *job);
void pd_sets_tick(pd_job *job, uint64_t now_ns);

#endif
