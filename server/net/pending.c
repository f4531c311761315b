#include "pending.h"

#include <assert.h>
#include <stdlib.h>

static pd_pending **bucket_of(const pd_pendings *table, uint64_t id)
{
    return (pd_pending **)&table->bucket[(id * table->key) >> 56];
}

pd_pending *pd_pending_new(struct pd_conn *conn, const pd_prefix *request, size_t n_pieces)
{
    pd_pending *pending = calloc(1, sizeof *pending + n_pieces * sizeof pending->wait.at[0]);

    if (pending == NULL) return NULL;
    pending->conn = conn;
    pending->id = request->request;
    pending->method = request->method;
    pending->checksum = (request->flags & PD_FLAG_CHECKSUM) != 0;
    pending->wait.n = n_pieces;
    return pending;
}

pd_prefix pd_pending_asked(const pd_pending *pending)
{
    return (pd_prefix){ .method = pending->method, .request = pending->id, .flags = pending->checksum ? PD_FLAG_CHECKSUM : 0 };
}

void pd_pending_free(pd_pending *pending)
{
    free(pending);
}

pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id)
{
    pd_pending *pending = *bucket_of(table, id);

    while (pending != NULL && pending->id != id) pending = pending->next;
    return pending;
}

void pd_pendings_add(pd_pendings *table, pd_pending *pending)
{
    pd_pending **bucket = bucket_of(table, pending->id);

    assert(pd_pendings_find(table, pending->id) == NULL);
    pending->next = *bucket;
    *bucket = pending;
    table->n++;
    table->pieces += pending->wait.n;
}

void pd_pendings_remove(pd_pendings *table, pd_pending *pending)
{
    pd_pending **at = bucket_of(table, pending->id);

    while (*at != pending) at = &(*at)->next;
    *at = pending->next;
    table->n--;
    table->pieces -= pending->wait.n;
}

pd_pending *pd_pendings_any(const pd_pendings *table)
{
    for (size_t i = 0; table->n > 0 && i < PD_PENDING_BUCKETS; i++)
        if (table->bucket[i] != NULL) return table->bucket[i];
    return NULL;
}

pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method)
{
    for (size_t i = 0; table->n > 0 && i < PD_PENDING_BUCKETS; i++)
        for (pd_pending *pending = table->bucket[i]; pending != NULL; pending = pending->next)
            if (pending->method == method) return pending;
    return NULL;
}

pd_pending *pd_pending_of(pd_wait *wait)
{
    return (pd_pending *)(void *)((char *)wait - offsetof(pd_pending, wait));
}
