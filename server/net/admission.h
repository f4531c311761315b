/* admission.h - divides the ingest budget (memory for received payloads) among the ranks. A payload is in flight
 * until its buffer is freed.
 *
 * Runs on the loop thread. Each rank that has declared its parameters owns a reserve, which is at least as large as
 * its largest frame. The bytes that are not reserved are divided equally among the ranks. A rank with nothing in
 * flight may always send one frame, so no order of arrivals can lead to a deadlock. */
#ifndef PD_ADMISSION_H
#define PD_ADMISSION_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_admission {
    uint64_t budget;         /* payload bytes that all ranks together may have in flight */
    uint64_t reserved, used; /* bytes that all ranks have reserved; bytes that all ranks have in flight */
    uint32_t ranks;
} pd_admission;

/* One rank's part of the ingest budget. All fields are 0 if the connection has no rank. */
typedef struct pd_quota {
    uint64_t reserve; /* bytes of the rank's largest frame; 0: the rank has not declared its parameters */
    uint64_t charged; /* payload bytes that the rank has in flight */
} pd_quota;

/* Gives a rank its reserve. A second call for the same rank replaces the first reserve. PD_RESOURCE_EXHAUSTED: the
 * reserves of all ranks would exceed the budget; nothing has changed. */
int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err);
/* Takes a rank's reserve back. Does nothing if the rank has no reserve. */
void pd_admission_leave(pd_admission *admission, pd_quota *quota);

/* Charges `bytes`, which may not exceed the rank's reserve, to the rank. Returns false if the rank has to wait until
 * payload buffers are freed. A connection without a reserve (an operator who imports a checkpoint) may use the part
 * of the budget that is free. */
bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes);
/* Returns `bytes` that were charged earlier to the budget. `quota` is NULL if the rank has left. */
void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes);

#endif
