/* ingest.c - counts the bytes of received frames that wait in memory, for each rank and for all, and the bytes that
 * are reserved for each rank. */
#include "ingest.h"

#include <stddef.h>

static uint64_t kept(const pd_quota *quota)
{
    if (!quota->released) return quota->reserve;
    return quota->held < quota->reserve ? quota->held : quota->reserve;
}

void pd_quota_settle(pd_ingest *ingest, pd_quota *quota)
{
    uint64_t now = kept(quota);

    ingest->n_ranks += (now > 0) - (quota->reserved > 0);
    ingest->reserved += now - quota->reserved;
    if (quota->share != NULL) quota->share->reserved += now - quota->reserved;
    quota->reserved = now;
}

uint64_t pd_ingest_room(const pd_ingest *ingest)
{
    return ingest->reserved < ingest->limit ? ingest->limit - ingest->reserved : 0;
}

uint64_t pd_ingest_share_room(const pd_ingest_share *share)
{
    return share->reserved < share->limit ? share->limit - share->reserved : 0;
}

void pd_quota_join(pd_quota *quota, pd_ingest_share *share)
{
    quota->share = share;
    share->reserved += quota->reserved;
}

void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->reserve = bytes;
    quota->released = false;
    pd_quota_settle(ingest, quota);
}

void pd_quota_release(pd_ingest *ingest, pd_quota *quota)
{
    quota->released = true;
    pd_quota_settle(ingest, quota);
}

void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->held += bytes;
    quota->stalled = false;
    ingest->held += bytes;
    pd_quota_settle(ingest, quota);
}

void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes)
{
    quota->held -= bytes;
    ingest->held -= bytes;
    if (ingest->held <= ingest->limit / 2) ingest->exhausted = false;
    pd_quota_settle(ingest, quota);
}

bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota)
{
    uint64_t limit = ingest->limit, n_ranks = ingest->n_ranks > 0 ? ingest->n_ranks : 1;
    uint64_t spare = pd_spare_part(limit > ingest->reserved ? limit - ingest->reserved : 0, n_ranks);
    uint64_t share = quota->reserve + spare, calm = share / 2 < spare ? share / 2 : spare;

    if (quota->held > 0 && (quota->stalled || ingest->exhausted)) return true;
    return quota->held > calm || (quota->held > 0 && ingest->held + quota->reserve > limit);
}
