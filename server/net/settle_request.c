/* settle_request.c - handles Settle: workers ask for the tally of this shard, and bring the tallies of all shards. */
#include "handlers.h"

#include <stdlib.h>
#include <string.h>

/* Copies the tallies of a verdict into one allocation, which the request owns. */
static int copy_tallies(pd_request *request, const Paramd__SettleRequest *settle)
{
    size_t bytes = settle->n_tallies * sizeof(pd_tally_view);
    uint8_t *at;

    for (size_t i = 0; i < settle->n_tallies; i++) bytes += settle->tallies[i].len;
    if ((request->u.settle.tallies = malloc(bytes)) == NULL) return PD_NO_MEMORY;
    request->u.settle.n = settle->n_tallies;
    at = (uint8_t *)(request->u.settle.tallies + settle->n_tallies);
    for (size_t i = 0; i < settle->n_tallies; i++) {
        size_t n = settle->tallies[i].len;
        if (n > 0) memcpy(at, settle->tallies[i].data, n);
        request->u.settle.tallies[i] = (pd_tally_view){ at, n };
        at += n;
    }
    return PD_OK;
}

int pd_fill_settle(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__SettleRequest *settle = message;

    (void)conn, (void)prefix, (void)err;
    request->u.settle.step = settle->step;
    request->u.settle.phase = settle->phase;
    return settle->n_tallies > 0 ? copy_tallies(request, settle) : PD_OK;
}

void pd_reply_settled(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    Paramd__SettleReply reply = PARAMD__SETTLE_REPLY__INIT;

    reply.step = effect->u.settled.step;
    reply.phase = effect->u.settled.phase;
    reply.tally.data = effect->u.settled.at;
    reply.tally.len = effect->u.settled.bytes;
    pd_conn_answer(conn, pending, &reply.base);
}
