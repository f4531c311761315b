#include "snapshot.h"

#include <assert.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "pages.h"

enum { IDLE_PER_USER = 2 };

/* An idle buffer links to the next in its own first bytes. */
typedef struct idle { struct idle *next; } idle;

struct pd_buffer_pool {
    UT_hash_handle hh;
    pd_buffer_pools *all;
    size_t   bytes;             /* of each buffer; the key */
    size_t   users, out, n_idle;
    idle    *idle;
};

/* A snapshot knows its shelves: the parameter may be gone when it comes home. */
typedef struct shelved {
    pd_snapshot view;           /* first: what the others see */
    pd_buffer_pool   *shelf[4];
} shelved;

/* Two snapshots, each with a buffer of its weights and one of other types; a sum; a shelf for each. */
uint64_t pd_snapshots_own_bytes(void)
{
    enum { ALLOCATOR = 16, BUFFERS = 5, BUFFER_END = 160 };

    return 2 * (sizeof(shelved) + ALLOCATOR) + 2 * (sizeof(pd_buffer_pool) + ALLOCATOR) + BUFFERS * BUFFER_END;
}

pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, size_t bytes)
{
    pd_buffer_pool *shelf;

    HASH_FIND(hh, all->table, &bytes, sizeof bytes, shelf);
    if (shelf == NULL) {
        if ((shelf = calloc(1, sizeof *shelf)) == NULL) return NULL;
        shelf->all = all;
        shelf->bytes = bytes;
        HASH_ADD(hh, all->table, bytes, sizeof bytes, shelf);
        if (shelf->hh.tbl == NULL) {
            free(shelf);
            return NULL;
        }
    }
    shelf->users++;
    return shelf;
}

static void discard_idle(pd_buffer_pool *shelf, size_t keep)
{
    while (shelf->n_idle > keep) {
        idle *at = shelf->idle;
        shelf->idle = at->next;
        shelf->n_idle--;
        shelf->all->idle -= shelf->bytes;
        free(at);
    }
}

static void trim(pd_buffer_pool *shelf)
{
    discard_idle(shelf, IDLE_PER_USER * shelf->users);
    if (shelf->users > 0 || shelf->out > 0) return;
    HASH_DEL(shelf->all->table, shelf);
    free(shelf);
}

void pd_buffer_pool_leave(pd_buffer_pool *shelf)
{
    if (shelf == NULL) return;
    assert(shelf->users > 0);
    shelf->users--;
    trim(shelf);
}

void *pd_buffer_pool_take(pd_buffer_pool *shelf)
{
    idle *at = shelf->idle;

    if (at != NULL) {
        shelf->idle = at->next;
        shelf->n_idle--;
        shelf->all->idle -= shelf->bytes;
    } else if ((at = pd_pages_new(shelf->bytes)) == NULL) {
        return NULL;
    }
    shelf->out++;
    shelf->all->used += shelf->bytes;
    return at;
}

void pd_buffer_pool_give(pd_buffer_pool *shelf, void *at)
{
    idle *back = at;

    if (at == NULL) return;
    assert(shelf->out > 0);
    shelf->out--;
    shelf->all->used -= shelf->bytes;
    shelf->all->idle += shelf->bytes;
    back->next = shelf->idle;
    shelf->idle = back;
    shelf->n_idle++;
    trim(shelf);
}

static void free_shelved(shelved *whole)
{
    for (int t = 0; t < 4; t++)
        if (whole->pool[t] != NULL) pd_buffer_pool_give(whole->pool[t], whole->view.at[t]);
    free(whole);
}

pd_snapshot *pd_snapshot_new(pd_buffer_pool *const shelf[4], int64_t elements)
{
    shelved *whole = calloc(1, sizeof *whole);

    if (whole == NULL) return NULL;
    whole->view.elements = elements;
    whole->view.store_refs = 1;
    for (int t = 0; t < 4; t++) {
        if (shelf[t] == NULL) continue;
        whole->pool[t] = shelf[t];
        if ((whole->view.at[t] = pd_buffer_pool_take(shelf[t])) == NULL) {
            free_shelved(whole);
            return NULL;
        }
    }
    return &whole->view;
}

int pd_snapshot_widen(pd_snapshot *snapshot, pd_dtype dtype, pd_buffer_pool *shelf)
{
    shelved *whole = (shelved *)(void *)snapshot;

    if (snapshot->at[dtype] != NULL) return PD_OK;
    if ((snapshot->at[dtype] = pd_buffer_pool_take(shelf)) == NULL) return PD_NO_MEMORY;
    whole->pool[dtype] = shelf;
    return PD_OK;
}

void pd_snapshot_unref(pd_snapshot *snapshot)
{
    if (snapshot == NULL) return;
    assert(snapshot->store_refs > 0);
    if (--snapshot->store_refs == 0) free_shelved((shelved *)(void *)snapshot);
}
