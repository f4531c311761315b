/* reserve.c - the part of the ingest budget that each rank keeps for itself: taken when the rank declares, given back when nobody can use it.
 *
 * The loop thread counts the reserves of the connections that have declared (net/admission.h). The store counts at least those: a rank is counted here
 * before its connection hears so, and a lost rank stays counted while its job has other workers, so that it finds its place when it comes back. So the
 * store never believes that a rank has more room than the loop thread gives it, and pd_rank_is_over_quota errs on the safe side. The one exception is a rank
 * that leaves: the loop thread counts it until it reads the answer, and then looks again at every connection that was stopped meanwhile.
 *
 * A rank that has gone keeps what its frames still take, at most its reserve. Otherwise jobs that come, fill the budget and go could hold it many times. */
#include "training.h"

static uint64_t kept(const pd_rank *rank)
{
    if (!rank->released) return rank->reserve;
    return rank->held < rank->reserve ? rank->held : rank->reserve;
}

void pd_reserve_settle(pd_job *job, pd_rank *rank)
{
    uint64_t now = kept(rank);

    job->store->n_ranks += (now > 0) - (rank->reserved > 0);
    job->store->reserved += now - rank->reserved;
    rank->reserved = now;
}

int pd_reserve_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err)
{
    uint64_t limit = job->store->config.ingest_bytes, all = own + (job->world - 1) * other;

    if (all <= limit) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: %u ranks, this one with frames of up to %llu bytes, need %llu bytes of ingest budget, and there are "
                   "%llu for all jobs (limits.ingest_bytes, limits.chunk_bytes)", job->name, job->world, (unsigned long long)own, (unsigned long long)all,
                   (unsigned long long)limit);
}

int pd_reserve_check(const pd_job *job, const pd_rank *rank, uint64_t bytes, pd_error *err)
{
    uint64_t limit = job->store->config.ingest_bytes, others = job->store->reserved - rank->reserved;

    if (others <= limit && bytes <= limit - others) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: rank %u has frames of up to %llu bytes and needs as much ingest budget; of %llu, %llu are reserved by "
                   "other ranks: come again when one of their jobs has ended (limits.ingest_bytes, limits.chunk_bytes)", job->name,
                   (unsigned)(rank - job->ranks), (unsigned long long)bytes, (unsigned long long)limit, (unsigned long long)others);
}

void pd_reserve_take(pd_job *job, pd_rank *rank, uint64_t bytes)
{
    rank->reserve = bytes;
    rank->released = false;
    pd_reserve_settle(job, rank);
}

void pd_reserve_release(pd_job *job, pd_rank *rank)
{
    rank->released = true;
    pd_reserve_settle(job, rank);
}

void pd_reserve_release_all(pd_job *job)
{
    for (uint32_t r = 0; r < job->world; r++) pd_reserve_release(job, &job->ranks[r]);
}

void pd_reserve_forget(pd_job *job)
{
    for (uint32_t r = 0; job->ranks != NULL && r < job->world; r++) pd_reserve_take(job, &job->ranks[r], 0);
}
