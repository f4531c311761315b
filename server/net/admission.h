/* admission.h - divides the ingest budget among the ranks.
 *
 * Runs on the loop thread. A payload is in flight from the time its memory is taken until its buffer is freed. Each
 * rank that has declared its parameters owns a reserve: bytes of the budget that no other rank may use, as many as its
 * largest frame has. The bytes that are not reserved are divided equally among the ranks. A rank with nothing in flight
 * may always send one frame, so ranks never wait for each other's memory in a circle. */
#ifndef PD_ADMISSION_H
#define PD_ADMISSION_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_admission {
    uint64_t budget;         /* payload bytes that all ranks together may have in flight: received and not freed yet */
    uint64_t reserved, used; /* sums over all ranks: bytes reserved, and payload bytes in flight (received and not freed
                              * yet) */
    uint32_t ranks;
} pd_admission;

/* What one connection uses of the ingest budget. */
typedef struct pd_quota {
    uint64_t reserve; /* bytes of the rank's largest frame, which no other rank may use; 0: the connection is an
                       * operator's, or the rank has not declared its parameters */
    uint64_t charged; /* payload bytes of this connection in flight: received and not freed yet */
} pd_quota;

/* Gives a rank its reserve: bytes of the ingest budget that no other rank may use. A second call for the same rank
 * replaces the first reserve. PD_RESOURCE_EXHAUSTED: the reserves of all ranks would exceed the budget; nothing has
 * changed. */
int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err);
/* Ends a rank's reserve (its part of the ingest budget), which others may use then. Does nothing if the rank has no
 * reserve. */
void pd_admission_leave(pd_admission *admission, pd_quota *quota);

/* Takes `bytes`, which may not exceed the rank's reserve, from the ingest budget for a payload of the rank. Returns
 * false if the rank has to wait until payload buffers are freed. A connection without a reserve (an operator who
 * imports a checkpoint) may use the part of the budget that is free. */
bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes);
/* Gives back to the ingest budget the `bytes` that a payload took from it. `quota` is the connection's use of the
 * budget, or NULL if the connection is closed. */
void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes);

#endif
