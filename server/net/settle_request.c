/* settle_request.c - handles Settle: workers ask for the tally of this shard, and bring the tallies of all shards. */
#include "handlers.h"

#include "most_shards.h"

/* Copies the tallies of a verdict. A header has room for far more tallies than a cluster has shards, and their views
 * would take many times its bytes. */
static int copy_tallies(pd_request *request, const Paramd__SettleRequest *settle, pd_error *err)
{
    pd_tally_view views[PD_MAX_SHARDS];

    if (settle->n_tallies > PD_MAX_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "verdict of %zu tallies: a cluster has at most %d shards",
                       settle->n_tallies, PD_MAX_SHARDS);
    for (size_t i = 0; i < settle->n_tallies; i++)
        views[i] = (pd_tally_view){ settle->tallies[i].data, settle->tallies[i].len };
    return pd_tallies_copy(&request->u.settle, views, settle->n_tallies);
}

int pd_fill_settle(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__SettleRequest *settle = message;

    (void)conn, (void)prefix;
    request->u.settle.step = settle->step;
    request->u.settle.phase = settle->phase;
    return settle->n_tallies > 0 ? copy_tallies(request, settle, err) : PD_OK;
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
