/* buffer_pool.c - keeps the idle buffers of each size in a linked list. */
#include "buffer_pool.h"

#include <assert.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "pages.h"

enum { IDLE_PER_USER = 2 };

/* The first bytes of an idle buffer, while nobody uses it: they link it to the next idle buffer of its size. */
typedef struct idle {
    struct idle *next;
} idle;

struct pd_buffer_pool {
    UT_hash_handle hh;
    pd_buffer_pools *all;
    size_t bytes; /* size in bytes of each buffer; the key of the hash table of pools */
    size_t users, out, n_idle;
    idle *idle;
};

pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, size_t bytes)
{
    pd_buffer_pool *pool;

    HASH_FIND(hh, all->table, &bytes, sizeof bytes, pool);
    if (pool == NULL) {
        if ((pool = calloc(1, sizeof *pool)) == NULL) return NULL;
        pool->all = all;
        pool->bytes = bytes;
        HASH_ADD(hh, all->table, bytes, sizeof bytes, pool);
        if (pool->hh.tbl == NULL) {
            free(pool);
            return NULL;
        }
    }
    pool->users++;
    return pool;
}

static void discard_idle(pd_buffer_pool *pool, size_t keep)
{
    while (pool->n_idle > keep) {
        idle *at = pool->idle;
        pool->idle = at->next;
        pool->n_idle--;
        pool->all->idle -= pool->bytes;
        free(at);
    }
}

static void trim(pd_buffer_pool *pool)
{
    discard_idle(pool, IDLE_PER_USER * pool->users);
    if (pool->users > 0 || pool->out > 0) return;
    HASH_DEL(pool->all->table, pool);
    free(pool);
}

void pd_buffer_pool_leave(pd_buffer_pool *pool)
{
    if (pool == NULL) return;
    assert(pool->users > 0);
    pool->users--;
    trim(pool);
}

void *pd_buffer_pool_take(pd_buffer_pool *pool)
{
    idle *at = pool->idle;

    if (at != NULL) {
        pool->idle = at->next;
        pool->n_idle--;
        pool->all->idle -= pool->bytes;
    } else if ((at = pd_pages_new(pool->bytes)) == NULL) {
        return NULL;
    }
    pool->out++;
    pool->all->used += pool->bytes;
    return at;
}

void pd_buffer_pool_give(pd_buffer_pool *pool, void *at)
{
    idle *back = at;

    if (at == NULL) return;
    assert(pool->out > 0);
    pool->out--;
    pool->all->used -= pool->bytes;
    pool->all->idle += pool->bytes;
    back->next = pool->idle;
    pool->idle = back;
    pool->n_idle++;
    trim(pool);
}

uint64_t pd_buffer_pool_own_bytes(void)
{
    return sizeof(pd_buffer_pool);
}
