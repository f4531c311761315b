/* control_keeping.h - the commands that wait until the disk has the values that they have set. Step thread.
 *
 * The records of commands come to the disk with entries of the job's control log, which are made in store/image
 * (control_log.h), or with a checkpoint. */
#ifndef PD_CONTROL_KEEPING_H
#define PD_CONTROL_KEEPING_H

#include "job.h"

/* Returns whether records are made: they will come to the disk. */
bool pd_control_is_on(const pd_job *job);
/* Answers a command that has set values, whose request has the result: at once if the job has no durable checkpoint,
 * otherwise when the disk has the command's record, or a checkpoint with the values. `noted`: a record was made;
 * otherwise a checkpoint is begun soon. After 10 s the answer is an error which says that the values hold, but may not
 * survive the server. Takes ownership of the request. */
void pd_control_answer(pd_job *job, pd_request *request, bool noted, uint64_t now_ns);

/* ---- for control_log.c ---- */

/* Answers the commands whose records are in entries up to this number. */
void pd_control_written(pd_job *job, uint64_t number);
/* Notes that the checkpoint which is being made has the values of all commands so far. */
void pd_control_in_head(pd_job *job);
/* Answers the commands whose values the checkpoint has, which is durable now (`good`). Otherwise they wait on. */
void pd_control_settle(pd_job *job, bool good);
/* Gives the commands whose records wait for an entry the number of this entry. */
void pd_control_number(pd_job *job, uint64_t number);
/* Notes that records in entries after this number are lost: the commands wait for a checkpoint. */
void pd_control_lost(pd_job *job, uint64_t number);
/* Notes that the records in this entry alone are lost. */
void pd_control_lost_entry(pd_job *job, uint64_t number);
/* Moves the commands that wait to the job that takes the place of this one. They wait for its first checkpoint. */
void pd_control_move(pd_job *to, pd_job *from);
/* Refuses all commands that wait, because the job ends. */
void pd_control_refuse_all(pd_job *job, const pd_error *err);

/* Returns the time at which a command has waited long enough; UINT64_MAX: none waits. */
uint64_t pd_control_next_tick(const pd_job *job);
void pd_control_tick(pd_job *job, uint64_t now_ns);

#endif
