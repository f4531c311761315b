/* ingest.h - the ingest budget, which limits the bytes of frames (network messages with tensors) that were received and
 * are not summed yet. A part of it is reserved for each rank.
 *
 * Step thread. A rank's *reserve* is the bytes of its largest frame. The first rank of a job that declares takes the
 * reserves of all its ranks, or none of them (job/reserves.h). A rank gives its reserve back when it leaves, some time
 * after it is lost, and when the job has no worker any more. The jobs of one identity may reserve a share of the
 * budget.
 *
 * The loop thread and the step thread both count reserves. The loop thread counts the reserves of the connections whose
 * ranks have declared (net/admission.h). The store, on the step thread, counts these and often more: ranks that have
 * not come yet, and ranks that were lost a short time ago.
 *
 * A rank's *share* of the budget is its reserve and an equal part of the bytes that are reserved for nobody, at most
 * PD_SPARE_MOST: with a large budget a few fast ranks would otherwise fill gigabytes with payloads. So the more
 * reserves are counted, the smaller is each share, and the store never assumes a larger share for a rank than the loop
 * thread grants. pd_quota_is_exceeded, which says that a rank has nearly used its share, returns true rather too early
 * than too late. There is one exception: when a rank leaves, the loop thread counts it until it has read the answer to
 * Leave. Then it checks all connections again that it had blocked in between.
 *
 * When a rank has gone, the bytes of its frames that are not summed yet stay reserved, but not more than its reserve.
 * Otherwise jobs that start, fill the budget and end could use it several times over. */
#ifndef PD_INGEST_H
#define PD_INGEST_H

#include "paramd/error.h"
#include "unreserved.h"

#include <stdbool.h>
#include <stdint.h>

/* The ingest budget (memory for received frames that are not summed yet) of the whole server: what is reserved of it,
 * and what is used. */
typedef struct pd_ingest {
    uint64_t limit;    /* bytes that may be used: limits.ingest_bytes of the configuration */
    uint64_t reserved; /* bytes reserved for all ranks: the sum of pd_quota.reserved over all jobs */
    uint64_t n_ranks;  /* number of ranks whose pd_quota.reserved is not 0 */
    uint64_t held;     /* bytes of frames that were received and are not summed yet */
    bool exhausted;    /* the loop thread has blocked a connection because the whole budget is used */
    /* set when reserves (bytes kept for a rank's frames) have grown or a connection was blocked: then the store looks
     * again which ranks use up their share */
    bool grown;
} pd_ingest;

/* What the jobs of one identity may reserve of the ingest budget, and what they have reserved. */
typedef struct pd_ingest_share {
    uint64_t limit, reserved; /* bytes */
} pd_ingest_share;

/* The part of the ingest budget that one rank uses. Initialize with zeros. */
typedef struct pd_quota {
    pd_ingest_share *share; /* in which the reserve counts, too; NULL: in none */
    uint64_t conn;          /* number of the connection to which the loop thread charges the rank's frames */
    bool declared;          /* the rank has declared its parameters on the connection `conn` */
    uint64_t reserve;       /* bytes of the rank's largest frame; 0: no rank of the job has declared yet */
    uint64_t reserved;      /* bytes reserved for the rank now: equal to `reserve`, or fewer once the rank has gone */
    bool released; /* the rank has gone, so only the bytes of its frames in memory stay reserved, at most `reserve` */
    uint64_t held; /* bytes of the rank's frames that are not summed yet */
    /* the loop thread has blocked the rank's connection, and some of the rank's frames are not summed yet */
    bool stalled;
} pd_quota;

/* Return how many more bytes can be reserved: of the whole budget, and of the share of an identity. */
uint64_t pd_ingest_room(const pd_ingest *ingest);
uint64_t pd_ingest_share_room(const pd_ingest_share *share);
/* Counts the reserve of a rank in the share of an identity, too, from now on. */
void pd_quota_join(pd_quota *quota, pd_ingest_share *share);
/* Reserves `bytes` of the ingest budget for a rank. With 0 bytes it ends the reservation. */
void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
/* Ends the reservation of a rank that has gone, except for the bytes of its frames that are not summed yet. */
void pd_quota_release(pd_ingest *ingest, pd_quota *quota);
/* Computes anew how many bytes are reserved for a rank, after its reserve or the bytes of its frames have changed. */
void pd_quota_settle(pd_ingest *ingest, pd_quota *quota);

/* Count a frame of `bytes` bytes for a rank: pd_quota_hold when the frame is received, pd_quota_let_go when it is
 * summed or dropped. */
void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);

/* Returns whether a rank is over quota: the bytes of its frames that are not summed yet nearly use up its share, so
 * its connection may be blocked. The contributions of a rank over quota must be summed as soon as those of all lower
 * ranks have come.
 *
 * The loop thread blocks a connection only if another frame might not fit into this share, or into the
 * whole budget. If this estimate is wrong, the loop thread reports the blocked connection (PD_REQ_STALLED). */
bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota);

#endif
