/* pending.c - keeps the open requests of a connection in two hash tables: by request id and by serial number. */
#include "pending.h"

#include "mutant.h"
#include "zeroed.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

enum { LEAST_BITS = 4 };

static pd_pending **id_bucket(const pd_pendings *table, uint64_t id)
{
    return &table->by_id[(id * table->key) >> (64 - table->bits)];
}
static pd_pending **serial_bucket(const pd_pendings *table, uint64_t serial)
{
    return &table->by_serial[serial & (((uint64_t)1 << table->bits) - 1)];
}

static void file(pd_pendings *table, pd_pending *pending)
{
    pd_pending **bucket = id_bucket(table, pending->id);

    pending->next_id = *bucket;
    *bucket = pending;
    bucket = serial_bucket(table, pending->serial);
    pending->next_serial = *bucket;
    *bucket = pending;
}

static int resize(pd_pendings *table, unsigned bits)
{
    pd_pending **by_id = calloc((size_t)1 << bits, sizeof *by_id);
    pd_pending **by_serial = calloc((size_t)1 << bits, sizeof *by_serial);

    if (by_id == NULL || by_serial == NULL) {
        free(by_id);
        free(by_serial);
        return PD_NO_MEMORY;
    }
    free(table->by_id);
    free(table->by_serial);
    table->by_id = by_id;
    table->by_serial = by_serial;
    table->bits = bits;
    for (pd_pending *pending = table->oldest; pending != NULL; pending = pending->next) file(table, pending);
    return PD_OK;
}

/* Allocates the hash tables before the first request, and doubles them when they are full. PD_NO_MEMORY: there are no
 * tables. */
static int prepare(pd_pendings *table)
{
    if (table->bits == 0) return resize(table, LEAST_BITS);
    if (table->n >> table->bits > 0)
        (void)resize(table, table->bits + 1); /* without memory the tables keep their size and become slower */
    return PD_OK;
}

void pd_pendings_free(pd_pendings *table)
{
    assert(table->n == 0);
    free(table->by_id);
    free(table->by_serial);
}

size_t pd_pending_bytes(size_t n_pieces)
{
    return sizeof(pd_pending) + n_pieces * sizeof(pd_waiter);
}

pd_pending *pd_pending_new(pd_pendings *table, struct pd_conn *conn, const pd_prefix *request, size_t n_pieces)
{
    pd_pending *pending = prepare(table) == PD_OK ? pd_zeroed(pd_pending_bytes(n_pieces)) : NULL;

    if (pending == NULL) return NULL;
    pending->conn = conn;
    pending->id = request->request;
    pending->serial = PD_MUTANT(late_error_hits_reused_id) ? pending->id : ++table->last_serial;
    pending->method = request->method;
    pending->checksum = (request->flags & PD_FLAG_CHECKSUM) != 0;
    pending->wait.n = n_pieces;
    return pending;
}

pd_prefix pd_pending_asked(const pd_pending *pending)
{
    return (pd_prefix){ .method = pending->method,
                        .request = pending->id,
                        .flags = pending->checksum ? PD_FLAG_CHECKSUM : 0 };
}

void pd_pending_free(pd_pending *pending)
{
    if (pending != NULL && pending->withheld != NULL) pd_effect_free(pending->withheld);
    free(pending);
}

pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id)
{
    pd_pending *pending = table->bits > 0 ? *id_bucket(table, id) : NULL;

    while (pending != NULL && pending->id != id) pending = pending->next_id;
    return pending;
}

pd_pending *pd_pendings_find_serial(const pd_pendings *table, uint64_t serial)
{
    pd_pending *pending = table->bits > 0 ? *serial_bucket(table, serial) : NULL;

    while (pending != NULL && pending->serial != serial) pending = pending->next_serial;
    return pending;
}

static uint64_t pulling(const pd_pending *pending)
{
    return pending->wait.n > 0 && !pending->wait.pushes ? pd_pending_bytes(pending->wait.n) : 0;
}

void pd_pendings_add(pd_pendings *table, pd_pending *pending)
{
    assert(pd_pendings_find(table, pending->id) == NULL);
    file(table, pending);
    DL_APPEND(table->oldest, pending);
    table->n++;
    if (table->under_way != NULL) ++*table->under_way;
    table->pieces += pending->wait.n;
    table->of_kind[pending->kind]++;
    table->pulling += pulling(pending);
}

void pd_pendings_remove(pd_pendings *table, pd_pending *pending)
{
    pd_pending **at;

    for (at = id_bucket(table, pending->id); *at != pending;) at = &(*at)->next_id;
    *at = pending->next_id;
    for (at = serial_bucket(table, pending->serial); *at != pending;) at = &(*at)->next_serial;
    *at = pending->next_serial;
    DL_DELETE(table->oldest, pending);
    table->n--;
    if (table->under_way != NULL) --*table->under_way;
    table->pieces -= pending->wait.n;
    table->of_kind[pending->kind]--;
    table->pulling -= pulling(pending);
}

pd_pending *pd_pendings_any(const pd_pendings *table)
{
    return table->oldest;
}

pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method)
{
    pd_pending *pending = table->oldest;

    while (pending != NULL && pending->method != method) pending = pending->next;
    return pending;
}

pd_pending *pd_pending_of(pd_wait *wait)
{
    return (pd_pending *)(void *)((char *)wait - offsetof(pd_pending, wait));
}
