/* ranks.h - tracks which process has each rank of a job. Step thread. */
#ifndef PD_RANKS_H
#define PD_RANKS_H

#include "job.h"

/* Returns the rank's quota of the ingest budget. */
static inline pd_quota *pd_rank_quota(const pd_job *job, const pd_rank *rank)
{
    return &job->steps.quotas[rank - job->ranks];
}

/* Checks that the process that sent the Hello may have its rank. PD_ABORTED: another process has superseded it, so
 * it cannot come back. */
int pd_rank_admits(const pd_job *job, const pd_request *hello, pd_error *err);
/* Gives the rank to the process that sent the Hello, and notifies the connection that had it before. Takes the
 * request. */
void pd_rank_join(pd_job *job, pd_request *hello, bool created, uint64_t now_ns);
/* Returns the rank that sent the request. NULL, with the reason in *err: the connection was superseded or has left,
 * or the job has no such rank. */
pd_rank *pd_rank_speaker(pd_job *job, const pd_request *request, pd_error *err);
/* Notes that the rank's connection is lost. The caller keeps the request. */
void pd_rank_lost(pd_job *job, const pd_request *request, uint64_t now_ns);
/* Notes that the rank's worker leaves, and answers it. Takes the request. */
void pd_rank_leave(pd_job *job, pd_request *request, uint64_t now_ns);
/* Notes that the rank's connection waits for memory. From then on the rank's contributions are summed early. If the
 * whole ingest budget is used, the contributions of all ranks are summed early. Takes the request. */
void pd_rank_stalled(pd_job *job, pd_request *request);
/* Gives back the reserves that the job's ranks have in the ingest budget. */
void pd_ranks_forget_reserves(pd_job *job);

#endif
