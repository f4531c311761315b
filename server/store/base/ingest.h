/* ingest.h - the ingest budget: bytes of frames that came and are not summed yet, and the part of the budget that
 * each rank keeps.
 *
 * Step thread. A rank's *reserve* is the bytes of its largest frame. It is taken when the rank declares and given
 * back when nobody can use it. The loop thread counts the reserves of the connections that have declared
 * (net/admission.h). The store counts at least those: a rank is counted here before its connection is answered, and
 * a lost rank stays counted while its job has other workers, so that it finds its place when it comes back. So the
 * store never believes that a rank has more memory than the loop thread gives it, and pd_quota_is_exceeded errs on
 * the safe side. The one exception is a rank that leaves: the loop thread counts it until it reads the answer, and
 * then looks again at every connection that was stopped meanwhile.
 *
 * A rank that has gone keeps what its frames still take, at most its reserve. Otherwise jobs that come, fill the
 * budget and go could hold it many times. */
#ifndef PD_INGEST_H
#define PD_INGEST_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The whole budget. */
typedef struct pd_ingest {
    uint64_t limit;             /* bytes: limits.ingest_bytes */
    uint64_t reserved;          /* sum of pd_quota.reserved over all jobs */
    uint64_t n_ranks;           /* quotas of which that is not 0 */
    uint64_t held;              /* bytes of frames not summed yet */
    bool     exhausted;         /* some connection waits until the whole budget has room */
    bool     grown;             /* reserves have grown or a connection waits: other ranks may be over quota now */
} pd_ingest;

/* One rank's part. Begins zeroed. */
typedef struct pd_quota {
    uint64_t conn;              /* the connection that counts the rank's frames, */
    bool     declared;          /* once the rank has declared on it */
    uint64_t reserve;           /* bytes of the rank's largest frame; 0: it has not declared */
    uint64_t reserved;          /* bytes counted for the rank now */
    bool     released;          /* the rank has gone and keeps no more of its reserve than its frames take */
    uint64_t held;              /* bytes of its frames that are not summed yet */
    bool     stalled;           /* its connection waits for memory, and the rank holds some */
} pd_quota;

/* Checks that the budget has room for `bytes` as this rank's reserve, beside those of all others. *others: bytes that
 * these have. */
bool pd_quota_fits(const pd_ingest *ingest, const pd_quota *quota, uint64_t bytes, uint64_t *others);
/* Takes the reserve of a rank that has declared; 0: forgets it. */
void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
/* Gives back the reserve of a rank that has gone, but for what its frames take. */
void pd_quota_release(pd_ingest *ingest, pd_quota *quota);
/* Counts the rank's reserve anew: its frames have changed. */
void pd_quota_settle(pd_ingest *ingest, pd_quota *quota);

/* Counts a frame of so many bytes that is held, and one that is not held any more. */
void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);

/* Returns whether what the rank holds is to be summed as soon as the ranks before it are there: its share is nearly
 * used, and it may be waiting to send. The loop thread lets a rank have its reserve and an equal part of what all
 * reserves leave over; it is blocked at the earliest when another frame might not fit into that, or into the whole.
 * Where this estimate is wrong the loop thread reports it (PD_REQ_STALLED). */
bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota);

#endif
