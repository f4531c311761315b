/* lent.h - the answers of a connection whose weights the worker reads in shared memory, until it releases them.
 *
 * Runs on the loop thread. A lent answer keeps its references to snapshots, so the weights in them stay unchanged. It
 * is sent already, and stands in the list in the order of sending. */
#ifndef PD_LENT_H
#define PD_LENT_H

#include "pending.h"

typedef struct pd_lent {
    pd_pending *first, *last; /* linked by next_reply */
    uint64_t n;
    size_t bytes;      /* memory of the answers in the list, without weights */
    uint64_t since_ms; /* time since which the oldest answer waits to be released */
} pd_lent;

/* Adds an answer that is sent, and takes it. */
void pd_lent_add(pd_lent *lent, pd_pending *answer, uint64_t now_ms);
/* Removes the oldest n answers from the list. Returns them, linked by next_reply. n is at most lent->n. */
pd_pending *pd_lent_take(pd_lent *lent, uint64_t n, uint64_t now_ms);

#endif
