/* store_state.h - the struct of the whole training state, and the functions that only the store's own files call. Step
 * thread. */
#ifndef PD_STORE_STATE_H
#define PD_STORE_STATE_H

#include "collect.h"
#include "drain.h"
#include "job_figures.h"
#include "sums.h"

typedef struct pd_store pd_store;
typedef struct pd_going_back pd_going_back;

struct pd_store {
    pd_store_config config;
    pd_job_values presets; /* values of the job keys that a Hello does not set */
    pd_effects outbox;
    pd_buffer_pools pools;
    pd_budget budget;
    bool may_end_jobs; /* true: jobs that are over may be ended to make room in a budget (pd_store_relief) */
    pd_ingest ingest;
    pd_sums sums; /* memory for the sums of the present batch of work */
    pd_collect_batch collecting;
    pd_jobs jobs;
    pd_job *due;       /* queue of the jobs that have work */
    uint64_t turns;    /* number of batches of work that all jobs together have had */
    pd_job *deadlines; /* the job with the earliest deadline: jobs.h; NULL: no job has one */
    bool unknown;      /* true: deadlines of some jobs, such as those made from images, are not computed yet */
    pd_drain drain;
    pd_roles *roles; /* NULL: the server has none */
    pd_owners owners;
    pd_publishing publishing;
    pd_going_back *going_back; /* jobs that go back to an earlier step: store_go_back.h; NULL: none */
};

/* Returns the parts of the store that its jobs use. */
static inline pd_job_env pd_store_env(pd_store *store)
{
    return (pd_job_env){ &store->config, &store->presets, &store->outbox, &store->pools,
                         &store->budget, &store->ingest,  &store->sums,   &store->collecting };
}

/* Takes a job out of the queue of jobs that have work. */
void pd_store_unqueue(pd_store *store, pd_job *job);
/* Takes a job out of the queue of jobs that have work, and forgets its deadline. Called when the job ends or another
 * job takes its place. */
void pd_store_forget(pd_store *store, pd_job *job);
/* Forgets the deadlines of all jobs until the next tick. Called when jobs are made or ended outside the store's
 * requests. */
void pd_store_forget_deadlines(pd_store *store);
/* Ends a job for good: its waiting requests get `err`, and a restart does not bring it back. */
void pd_store_end(pd_store *store, pd_job *job, const pd_error *err);
/* Ends a job, and keeps its files: its waiting requests get `err`, and a restart brings it back. */
void pd_store_fail(pd_store *store, pd_job *job, const pd_error *err);
/* Ends all jobs, because the server stops: a restart brings them back. */
void pd_store_end_all(pd_store *store, const pd_error *err);

/* Ends the job that has been over (pd_job_is_over) for the longest time, among those whose bytes count in the budget
 * `of` (NULL: all jobs). The job that has the account `except` stays, and so does one that is being exported or
 * imported into. Returns false if there is no such job. */
bool pd_store_end_oldest(pd_store *store, const pd_budget *of, const pd_account *except);
/* Allows or forbids to end jobs that are over when another job needs their memory (pd_account_budget). It must be
 * forbidden while a caller iterates over the table of jobs. Exports of weights may be ended for memory at any time. */
void pd_store_relief(pd_store *store, bool allowed);

/* Answers a Hello. Returns the job that the Hello may have changed; NULL: it has changed none. Takes ownership of the
 * request. */
pd_job *pd_store_hello(pd_store *store, pd_request *request, uint64_t now_ns);

#endif
