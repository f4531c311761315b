/* ranks.h - which process has a rank of a job. Step thread. */
#ifndef PD_RANKS_H
#define PD_RANKS_H

#include "job.h"

/* Returns the rank's part of the ingest budget. */
static inline pd_quota *pd_rank_quota(const pd_job *job, const pd_rank *rank)
{
    return &job->steps.quotas[rank - job->ranks];
}

/* Checks that the process may have its rank. PD_ABORTED: another process has superseded it, and it stays out. */
int      pd_rank_admits(const pd_job *job, const pd_request *hello, pd_error *err);
/* Gives the rank to the process that sent the Hello, and tells the one that had it. Takes the request. */
void     pd_rank_join(pd_job *job, pd_request *hello, bool created);
/* Returns the rank that sent the request, or NULL: superseded, gone, or nonsense; *err says which. */
pd_rank *pd_rank_speaker(pd_job *job, const pd_request *request, pd_error *err);
/* Notes that the rank's connection is lost. The request stays the caller's. */
void     pd_rank_lost(pd_job *job, const pd_request *request, uint64_t now_ns);
/* Lets the rank leave. Takes the request. */
void     pd_rank_leave(pd_job *job, pd_request *request, uint64_t now_ns);
/* Notes that the rank's connection waits for memory: what the rank holds is summed early, or what all hold where the
 * whole budget is used. Takes the request. */
void     pd_rank_stalled(pd_job *job, pd_request *request);
/* Forgets what the ranks keep of the ingest budget. */
void     pd_ranks_forget_reserves(pd_job *job);

#endif
