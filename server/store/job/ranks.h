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

/* Checks that the process which has sent the Hello may have its rank. PD_ABORTED: another process has taken the rank
 * over from it before, so it must not return; or it has the rank on a newer connection than that of the Hello.
 * PD_PERMISSION_DENIED: the rank belongs to another identity. `guarded` says whether the server has roles: then a rank
 * whose worker is connected belongs to its identity. The process that has the rank always belongs to one identity, so
 * its nonce never moves to another. */
int pd_rank_admits(const pd_job *job, const pd_request *hello, bool guarded, pd_error *err);
/* Gives the rank to the process that has sent the Hello, and notifies the connection that had it before. Returns
 * whether the rank had this process already. Takes ownership of the request. */
bool pd_rank_join(pd_job *job, pd_request *hello, bool created, uint64_t now_ns);
/* Marks the processes that have had a rank of an old job as superseded: they must not take the rank of the new one. */
void pd_rank_supersede(pd_rank_saved *rank, const pd_rank_saved *old);
/* Returns the rank that has sent the request. NULL, with the reason in *err: another connection has taken the rank
 * over, the rank has left, or the job has no such rank. */
pd_rank *pd_rank_speaker(pd_job *job, const pd_request *request, pd_error *err);
/* Marks the rank as lost, because its connection has ended. Takes ownership of the request. */
void pd_rank_lost(pd_job *job, pd_request *request, uint64_t now_ns);
/* Marks the rank as left for good, and answers its worker: when the disk has that, if the job records decisions. The
 * caller makes the record (pd_wal_look_decisions). Takes ownership of the request. */
void pd_rank_leave(pd_job *job, pd_request *request, uint64_t now_ns);
/* Marks a rank that has left as lost, because a process of it has come or will come. Does nothing if it has not. */
void pd_rank_returns(pd_job *job, pd_rank *rank);
/* Marks a rank of a job that was just restored as left for good, or as lost, as a record of decisions says. */
void pd_rank_restore(pd_job *job, uint32_t number, bool left);
/* Ends the connection of a rank with the error *err, and marks the rank as lost because of `reason`. The rank may be
 * connected or not. If out of memory, its next frame is refused in place of that. */
void pd_rank_send_away(pd_job *job, uint32_t number, const pd_error *err, const char *reason, uint64_t now_ns);
/* Handles the report that the loop thread reads no more frames of the rank, because they use too much memory. From then
 * on the rank's contributions are summed early, which frees memory; those of all ranks, if the whole ingest budget is
 * used. Takes ownership of the request. */
void pd_rank_stalled(pd_job *job, pd_request *request);

/* Handles a rank's request to pass its next barrier: keeps the request until all members have sent theirs, then answers
 * all of them. Takes ownership of the request. */
void pd_job_barrier(pd_job *job, pd_request *request);
/* Lets the members pass the barrier at which all of them wait, after a member was removed. */
void pd_barriers_look(pd_job *job);
/* Refuses the request of a rank that waits at a barrier, if it has sent one. */
void pd_barrier_forget(pd_job *job, uint32_t rank);
/* Refuses all requests of ranks that wait at a barrier. */
void pd_barriers_refuse(pd_job *job, const pd_error *err);
/* Compares the number of barriers that a process has passed, as its Hello says, with the number that the job has
 * passed. `same` says whether the rank had this process already. A new process counts its barriers from 1.
 *
 * A job that was restored from a checkpoint may have passed more barriers than the checkpoint knows. Then every barrier
 * that any of its processes has passed counts as passed, so that no rank waits at a barrier that others have passed. */
void pd_barrier_joined(pd_job *job, pd_rank *rank, uint64_t passed, bool same);

#endif
