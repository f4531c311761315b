/* admission.h - divides the ingest budget among the ranks: how many payload bytes each may have in flight.
 *
 * Loop thread. Each rank that has declared its parameters owns a reserve, at least its largest frame, and an equal part
 * of the bytes that the reserves leave over. A rank with nothing in flight may always send one frame, so no order of
 * arrivals can lock up. */
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

/* One rank's part of the budget. Zeroed: no rank. */
typedef struct pd_share {
    uint64_t reserve;           /* its largest frame; 0: it has not declared */
    uint64_t charged;           /* bytes that it has in flight */
} pd_share;

/* Gives a rank its reserve. A second join replaces the first. PD_RESOURCE_EXHAUSTED: the reserves together would exceed
 * the budget; nothing has changed. */
int  pd_admission_join(pd_admission *admission, pd_share *share, uint64_t reserve, pd_error *err);
/* Takes a rank's reserve back. Does nothing if the rank never joined. */
void pd_admission_leave(pd_admission *admission, pd_share *share);

/* Charges `bytes` to the rank, at most its reserve. False: the rank has to wait until bytes come home. A connection
 * without a reserve (an operator who imports) may use the part of the budget that is free. */
bool pd_admission_take(pd_admission *admission, pd_share *share, uint64_t bytes);
/* Takes bytes back that were charged. `share` is NULL if the rank has gone. */
void pd_admission_give(pd_admission *admission, pd_share *share, uint64_t bytes);

#endif
