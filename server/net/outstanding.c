/* outstanding.c - a list of answers, oldest first. */
#include "outstanding.h"

#include <assert.h>

void pd_outstanding_add(pd_outstanding *lent, pd_pending *answer, uint64_t now_ms)
{
    answer->next_reply = NULL;
    if (lent->first == NULL) {
        lent->first = answer;
        lent->since_ms = now_ms;
    } else {
        lent->last->next_reply = answer;
    }
    lent->last = answer;
    lent->n++;
    lent->bytes += pd_pending_bytes(answer->wait.n);
}

pd_pending *pd_outstanding_take(pd_outstanding *lent, uint64_t n, uint64_t now_ms)
{
    pd_pending *taken = n > 0 ? lent->first : NULL, *end = NULL;

    assert(n <= lent->n);
    for (uint64_t i = 0; i < n; i++) {
        end = lent->first;
        lent->first = end->next_reply;
        lent->bytes -= pd_pending_bytes(end->wait.n);
    }
    if (end != NULL) {
        end->next_reply = NULL;
        lent->since_ms = now_ms;
    }
    lent->n -= n;
    return taken;
}
