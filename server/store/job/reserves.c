/* reserves.c - reserves room in the ingest budget for the frames of a job's ranks, and gives it back. */
#include "reserves.h"

static const uint64_t KEPT_NS = PD_RESERVE_KEPT_S * 1000000000ull;

/* Returns how many members there are besides the rank that declares. */
static uint64_t count_others(const pd_job *job)
{
    return job->steps.members.n > 0 ? job->steps.members.n - 1 : 0;
}

int pd_reserves_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err)
{
    uint64_t limit = job->steps.ingest->limit, all = own + count_others(job) * other;

    if (all <= limit) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: its %u ranks, with frames of up to %llu bytes, need %llu bytes of ingest budget, and "
                   "there are %llu for all jobs: raise limits.ingest_bytes, or lower limits.chunk_bytes",
                   job->steps.name, (uint32_t)count_others(job) + 1, (unsigned long long)(own > other ? own : other),
                   (unsigned long long)all, (unsigned long long)limit);
}

/* Returns whether nothing more is reserved for the rank: it has left for good, or is no member. */
static bool has_none(const pd_job *job, uint32_t r)
{
    return job->ranks[r].state == PD_RANK_LEFT || (!pd_is_member(job, r) && job->ranks[r].state != PD_RANK_CONNECTED);
}

/* Returns the bytes that must be reserved for rank `r` when `rank` declares with `bytes`. A rank that has never
 * declared counts like `rank`. A rank that has left for good, or is no
 * member, gets nothing more. */
static uint64_t wanted(const pd_job *job, uint32_t r, uint32_t rank, uint64_t bytes)
{
    const pd_quota *quota = &job->steps.quotas[r];

    if (r == rank) return bytes;
    if (has_none(job, r)) return quota->reserved;
    return quota->reserve > 0 ? quota->reserve : bytes;
}

/* Returns how many more bytes the job must reserve. */
static uint64_t lack(const pd_job *job, uint32_t rank, uint64_t bytes)
{
    uint64_t want = 0, have = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        want += wanted(job, r, rank, bytes);
        have += job->steps.quotas[r].reserved;
    }
    return want > have ? want - have : 0;
}

/* Writes the error for a job that does not fit into `share`, or into the whole budget if `share` is NULL. Does not
 * reveal what others have reserved. Returns PD_RESOURCE_EXHAUSTED. */
static int refuse(const pd_job *job, uint64_t bytes, uint64_t more, const pd_ingest_share *share, pd_error *err)
{
    if (share != NULL)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "job %.100s: its %u ranks, with frames of up to %llu bytes, need %llu more bytes of ingest "
                       "budget, and the jobs of %.60s may have %llu together (ingest= of its quota in server.roles, "
                       "else half of limits.ingest_bytes): end one of them, or lower limits.chunk_bytes",
                       job->steps.name, job->steps.members.ranks, (unsigned long long)bytes, (unsigned long long)more,
                       job->owner_identity, (unsigned long long)share->limit);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: its %u ranks, with frames of up to %llu bytes, need %llu more bytes of ingest budget "
                   "than are free now: come again when another job has ended, raise limits.ingest_bytes (%llu), or "
                   "lower limits.chunk_bytes",
                   job->steps.name, job->steps.members.ranks, (unsigned long long)bytes, (unsigned long long)more,
                   (unsigned long long)job->steps.ingest->limit);
}

static void take(pd_job *job, uint32_t rank, uint64_t bytes, uint64_t now_ns)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (r != rank && has_none(job, r)) continue;
        pd_quota_take(job->steps.ingest, &job->steps.quotas[r], wanted(job, r, rank, bytes));
        if (job->ranks[r].state == PD_RANK_LOST) job->timers.release_ns = now_ns + KEPT_NS;
    }
    job->steps.ingest->grown = true;
}

int pd_reserves_take(pd_job *job, uint32_t rank, uint64_t bytes, uint64_t now_ns, pd_error *err)
{
    const pd_quota *own = &job->steps.quotas[rank];
    uint64_t more;

    if (own->reserved == bytes && !own->released) return PD_OK;
    more = lack(job, rank, bytes);
    if (own->share != NULL && more > pd_ingest_share_room(own->share)) return refuse(job, bytes, more, own->share, err);
    if (more > pd_ingest_room(job->steps.ingest)) return refuse(job, bytes, more, NULL, err);
    take(job, rank, bytes, now_ns);
    return PD_OK;
}

void pd_reserves_gone(pd_job *job, uint32_t rank, uint64_t now_ns)
{
    if (job->ranks[rank].state == PD_RANK_LEFT)
        pd_quota_release(job->steps.ingest, &job->steps.quotas[rank]);
    else if (job->timers.release_ns == 0)
        job->timers.release_ns = now_ns + KEPT_NS;
    if (job->connected > 0) return;
    job->timers.release_ns = 0;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) pd_quota_release(job->steps.ingest, &job->steps.quotas[r]);
}

void pd_reserves_remove(pd_job *job, uint32_t rank)
{
    if (job->ranks[rank].state != PD_RANK_CONNECTED) pd_quota_release(job->steps.ingest, &job->steps.quotas[rank]);
}

uint64_t pd_reserves_next(const pd_job *job)
{
    return job->timers.release_ns > 0 ? job->timers.release_ns : UINT64_MAX;
}

void pd_reserves_tick(pd_job *job, uint64_t now_ns)
{
    if (now_ns < pd_reserves_next(job)) return;
    job->timers.release_ns = 0;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_quota *quota = &job->steps.quotas[r];
        uint64_t until_ns = job->ranks[r].since_ns + KEPT_NS;
        if (job->ranks[r].state != PD_RANK_LOST || quota->released) continue;
        if (until_ns <= now_ns)
            pd_quota_release(job->steps.ingest, quota);
        else if (job->timers.release_ns == 0 || until_ns < job->timers.release_ns)
            job->timers.release_ns = until_ns;
    }
}

void pd_reserves_forget(pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) pd_quota_take(job->steps.ingest, &job->steps.quotas[r], 0);
}
