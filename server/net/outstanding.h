/* outstanding.h - the answers of a connection whose weights the worker reads in shared memory, until it releases them.
 *
 * Runs on the loop thread. A lent answer keeps its references to published versions, so the weights in them stay
 * unchanged. It is sent already, and stands in the list in the order of sending. */
#ifndef PD_OUTSTANDING_H
#define PD_OUTSTANDING_H

#include "pending.h"

typedef struct pd_outstanding {
    pd_pending *first, *last; /* linked by next_reply */
    uint64_t n;
    size_t bytes;      /* memory of the answers in the list, without weights */
    uint64_t since_ms; /* time since which the oldest answer waits to be released */
} pd_outstanding;

/* Adds an answer that is sent, and takes it. */
void pd_outstanding_add(pd_outstanding *lent, pd_pending *answer, uint64_t now_ms);
/* Removes the oldest n answers from the list. Returns them, linked by next_reply. n is at most lent->n. */
pd_pending *pd_outstanding_take(pd_outstanding *lent, uint64_t n, uint64_t now_ms);

#endif
