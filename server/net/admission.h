/* admission.h - who may send how much: divides the ingest budget among the ranks.
 *
 * Loop thread. Each rank that has declared its parameters owns a reserve, at least its largest frame, and an equal part of what
 * the reserves leave over. A rank with nothing in flight may always send one frame, so no order of arrivals can lock up. */
#ifndef PD_ADMISSION_H
#define PD_ADMISSION_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_admission {
    uint64_t budget;            /* bytes that all ranks together may have in flight */
    uint64_t reserved, used;    /* sums of reserve and charged over the ranks */
    uint32_t ranks;
} pd_admission;

/* One rank's part. Zeroed: no rank. */
typedef struct pd_share {
    uint64_t reserve;           /* its largest frame; 0: it has not declared */
    uint64_t charged;           /* bytes that it has in flight */
} pd_share;

/* PD_RESOURCE_EXHAUSTED: the reserves together would exceed the budget; nothing has changed. A second join replaces the first. */
int  pd_admission_join(pd_admission *admission, pd_share *share, uint64_t reserve, pd_error *err);
void pd_admission_leave(pd_admission *admission, pd_share *share);      /* fine when it never joined */

/* False: it has to wait until something of it is reduced, or of others. True: `bytes` are charged to it. bytes <= share->reserve. A connection without a
 * reserve (an operator who imports) gets what the whole budget has to spare. */
bool pd_admission_take(pd_admission *admission, pd_share *share, uint64_t bytes);
/* Bytes come home; `share` is NULL when the rank has gone. */
void pd_admission_give(pd_admission *admission, pd_share *share, uint64_t bytes);

#endif
