/* ingest.h - the ingest budget: it limits the bytes of frames that were received and are not summed yet; a part of
 * it is reserved for each rank.
 *
 * Step thread. A rank's *reserve* is the bytes of its largest frame. It is reserved when the rank declares and given
 * back when nobody can use it any more.
 *
 * Both threads count reserves. The loop thread counts the reserves of the connections that have declared
 * (net/admission.h). The store counts these and sometimes more: it counts a rank before it answers the rank's
 * connection, and it counts a lost rank while the job has other workers. So a lost rank finds its reserve when it
 * comes back.
 *
 * The more reserves are counted, the smaller is the share of each rank. So the store never assumes a larger share
 * for a rank than the loop thread grants, and pd_quota_is_exceeded returns true rather too early than too late.
 * There is one exception: the loop thread counts a rank that leaves until it reads the answer to Leave. Then it
 * checks every connection again that it had blocked meanwhile.
 *
 * If a rank has gone, the bytes of its frames that are not summed yet stay reserved, at most its reserve. Otherwise
 * jobs that start, fill the budget and end could use it several times over. */
#ifndef PD_INGEST_H
#define PD_INGEST_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The whole ingest budget. */
typedef struct pd_ingest {
    uint64_t limit;    /* bytes: limits.ingest_bytes */
    uint64_t reserved; /* bytes reserved for all ranks: the sum of pd_quota.reserved over all jobs */
    uint64_t n_ranks;  /* number of ranks whose pd_quota.reserved is not 0 */
    uint64_t held;     /* bytes of frames that were received and are not summed yet */
    bool exhausted;    /* a connection is blocked because the whole budget is used */
    bool grown;        /* reserves have grown, or a connection is blocked: check all ranks again, more of them may be
                        * over quota */
} pd_ingest;

/* The part of the budget that one rank uses. Initialize with zeros. */
typedef struct pd_quota {
    uint64_t conn;     /* number of the connection to which the loop thread charges the rank's frames */
    bool declared;     /* the rank has declared its parameters on this connection */
    uint64_t reserve;  /* bytes of the rank's largest frame; 0: the rank has not declared yet */
    uint64_t reserved; /* bytes reserved for the rank now; this is `reserve` unless the rank has gone */
    bool released;     /* the rank has gone: only the bytes of its frames stay reserved, at most `reserve` */
    uint64_t held;     /* bytes of the rank's frames that are not summed yet */
    bool stalled;      /* the rank's connection is blocked, and some of its frames are not summed yet */
} pd_quota;

/* Returns whether `bytes` can be reserved for this rank besides the reserves of all other ranks. *others gets the
 * bytes that are reserved for these. */
bool pd_quota_fits(const pd_ingest *ingest, const pd_quota *quota, uint64_t bytes, uint64_t *others);
/* Reserves `bytes` for a rank that has declared. 0 bytes: ends the reservation. */
void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
/* Ends the reservation of a rank that has gone, except for the bytes of its frames that are not summed yet. */
void pd_quota_release(pd_ingest *ingest, pd_quota *quota);
/* Computes the bytes reserved for a rank again, after its reserve or its frames have changed. */
void pd_quota_settle(pd_ingest *ingest, pd_quota *quota);

/* Count a frame of `bytes` bytes: when it is received, and when it is summed or dropped. */
void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);

/* Returns whether a rank is over quota: the bytes of its frames that are not summed yet nearly use up its share, so
 * its connection may be blocked. The contributions of a rank over quota must be summed as soon as those of all lower
 * ranks have come.
 *
 * The share that the loop thread grants a rank is its reserve and an equal part of the bytes that are not reserved
 * for anybody. The loop thread blocks a connection only if another frame might not fit into this share, or into the
 * whole budget. If this estimate is wrong, the loop thread reports the blocked connection (PD_REQ_STALLED). */
bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota);

#endif
