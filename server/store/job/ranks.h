/* ranks.h - tracks which process has each rank of a job, and lets workers wait for each other at barriers. Step
 * thread. */
#ifndef PD_RANKS_H
#define PD_RANKS_H

#include "job.h"

/* Returns the rank's quota, the record of what it uses of the ingest budget. */
static inline pd_quota *pd_rank_quota(const pd_job *job, const pd_rank *rank)
{
    return &job->steps.quotas[rank - job->ranks];
}

/* Checks that the process which has sent the Hello may have its rank. PD_ABORTED: another process
 * has taken the rank over from it before, so it must not return. PD_PERMISSION_DENIED: the rank belongs to another
 * identity. `guarded` says whether the server has roles: then a rank whose worker is connected belongs to its identity.
 * The process that has the rank always belongs to one identity, so its nonce never moves to another. */
int pd_rank_admits(const pd_job *job, const pd_request *hello, bool guarded, pd_error *err);
/* Gives the rank to the process that has sent the Hello, and notifies the connection that had it before. Returns
 * whether the rank had this process already. Takes ownership of the request. */
bool pd_rank_join(pd_job *job, pd_request *hello, bool created, uint64_t now_ns);
/* Returns the rank that has sent the request. NULL, with the reason in *err: another connection has taken the rank
 * over, the rank has left, or the job has no such rank. */
pd_rank *pd_rank_speaker(pd_job *job, const pd_request *request, pd_error *err);
/* Notes that the rank's connection is lost. Takes ownership of the request. */
void pd_rank_lost(pd_job *job, pd_request *request, uint64_t now_ns);
/* Notes that the rank's worker leaves the job, and answers it. Takes ownership of the request. */
void pd_rank_leave(pd_job *job, pd_request *request, uint64_t now_ns);
/* Notes that the loop thread has blocked the rank's connection, because its frames use too much memory. From then on
 * the rank's contributions are summed early, which frees memory. If the whole ingest budget is used, those of all
 * ranks are. Takes ownership of the request. */
void pd_rank_stalled(pd_job *job, pd_request *request);

/* Notes that a rank has come to its next barrier, and keeps the request until all ranks have come. Then all of them
 * are answered. Takes ownership of the request. */
void pd_job_barrier(pd_job *job, pd_request *request);
/* Refuses all requests of ranks that wait at a barrier. */
void pd_barriers_refuse(pd_job *job, const pd_error *err);
/* Compares the barriers that a process has passed, as its Hello says, with those that the job has passed. `same` says
 * whether the rank had this process already. A new process counts its barriers from 1.
 *
 * A job that was restored from a checkpoint may have passed more barriers than the checkpoint knows. Then those are
 * counted as passed that any of its processes has passed, so that nobody waits at a barrier that others have passed. */
void pd_barrier_joined(pd_job *job, pd_rank *rank, uint64_t passed, bool same);

#endif
