/* piece_wait.c - fills in the version table's records (version_table.h) of the pieces that a push or a pull waits
 * for. */
#include "piece_wait.h"

void pd_piece_wait_fill(const pd_conn *conn, pd_waiter *waiter, pd_piece_wanted wanted)
{
    const pd_handle_facts *facts = &conn->handles.facts[wanted.handle];

    waiter->param = conn->handles.params[wanted.handle];
    waiter->dtype = conn->handles.decls[wanted.handle].pull_dtype;
    waiter->pulls = wanted.pulls;
    waiter->update = conn->handles.decls[wanted.handle].update_dtype;
    waiter->holds = wanted.holds;
    waiter->idle = facts->start == facts->end;
    waiter->first = (int64_t)wanted.first;
    waiter->count = (int64_t)wanted.count;
}

int pd_piece_wait_check(const pd_conn *conn, const pd_pending *pending, pd_error *err)
{
    uint64_t bytes = pd_reply_payload_bytes(&pending->wait), most = conn->daemon->config.max_payload;

    if (bytes <= most) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%s: the answer would have a payload of %llu bytes, at most %llu are "
                   "allowed: ask for less in one frame",
                   pd_method_name(pending->method), (unsigned long long)bytes, (unsigned long long)most);
}
