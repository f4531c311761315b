/* store_end.h - ends jobs: because somebody wants it, or to make room for others. Step thread. */
#ifndef PD_STORE_END_H
#define PD_STORE_END_H

#include "store_state.h"

/* Takes a job out of the queue of jobs that have work. */
void pd_store_unqueue(pd_store *store, pd_job *job);
/* Takes a job out of that queue, and forgets its deadline: it ends, or another job takes its place. */
void pd_store_forget(pd_store *store, pd_job *job);
/* Forgets the deadlines of all jobs until the next tick, because jobs are made or end that the store does not see. */
void pd_store_forget_deadlines(pd_store *store);
/* Ends a job for good: its waiting requests get `err`, and a restart does not bring it back. */
void pd_store_end(pd_store *store, pd_job *job, const pd_error *err);
/* Ends all jobs, because the server stops: a restart brings them back. */
void pd_store_end_all(pd_store *store, const pd_error *err);

/* Ends the job that has been over (pd_job_is_over) for the longest time, among those whose bytes count in the budget
 * `of` (NULL: all jobs). The job that has the account `except` stays, and so does one that is being exported or
 * imported into. Returns false if there is none. */
bool pd_store_end_oldest(pd_store *store, const pd_budget *of, const pd_account *except);
/* Allows or forbids that jobs which are over end when another job takes memory that it cannot have otherwise
 * (pd_account_budget). Allowed only while nobody walks through the table of jobs. Exports of weights end for that at
 * any time. */
void pd_store_relief(pd_store *store, bool allowed);

#endif
