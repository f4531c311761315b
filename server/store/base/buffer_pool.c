/* buffer_pool.c - keeps the idle buffers of each size in a list, and hands out the memory of shared segments.
 *
 * Buffers in a segment follow each other without gaps. If large ones began on huge pages of their own, each would take
 * up to 2 MiB more than is counted for it, because the kernel fills a huge page at once. */
#include "buffer_pool.h"

#include "grow.h"
#include "pages.h"
#include "zeroed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define ALIGN ((uint64_t)64)
#define HUGE_PAGE ((uint64_t)2 << 20)

/* Room for each element: four buffers of float32 (published weights, the next ones, a sum, a version that a slow reader
 * still holds) and as many of another element type. */
enum { BYTES_PER_ELEMENT = 4 * 4 + 4 * 4, BUFFERS_PER_PARAM = 8 };

struct pd_shared_weights {
    pd_segment segment;
    uint64_t used; /* bytes from the segment's beginning that are handed out, with the gaps of alignment */
    unsigned refs;
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

int pd_shared_weights_new(pd_shared_weights **out, uint64_t elements, uint64_t params, pd_error *err)
{
    uint64_t bytes = elements * BYTES_PER_ELEMENT + params * BUFFERS_PER_PARAM * ALIGN;
    pd_shared_weights *shared = calloc(1, sizeof *shared);
    int rc;

    if (shared == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = pd_segment_make(&shared->segment, round_up(bytes, HUGE_PAGE), err);
    if (rc != PD_OK) {
        free(shared);
        return rc;
    }
    shared->refs = 1;
    *out = shared;
    return PD_OK;
}

uint64_t pd_shared_weights_left(const pd_shared_weights *shared)
{
    return shared != NULL && shared->refs > 1 ? pd_segment_allocated(&shared->segment) : 0;
}

void pd_shared_weights_unref(pd_shared_weights *shared)
{
    if (shared == NULL) return;
    assert(shared->refs > 0);
    if (--shared->refs > 0) return;
    pd_segment_drop(&shared->segment);
    free(shared);
}

void *pd_shared_weights_take(pd_shared_weights *shared, size_t bytes)
{
    uint64_t at = round_up(shared->used, ALIGN);

    if (at > shared->segment.bytes || bytes > shared->segment.bytes - at) return NULL;
    shared->used = at + bytes;
    return shared->segment.at + at;
}

const pd_segment *pd_shared_weights_segment(const pd_shared_weights *shared)
{
    return shared != NULL ? &shared->segment : NULL;
}

enum { IDLE_PER_USER = 2 };

/* The key of the hash table of pools. It has no padding. */
typedef struct buffer_kind {
    pd_shared_weights *shared; /* segment of the buffers; NULL: private memory */
    size_t bytes;              /* size of each buffer */
} buffer_kind;

typedef struct idle_struct {
    struct idle_struct *next;
} idle_struct;

struct pd_buffer_pool {
    UT_hash_handle hh;
    pd_buffer_pools *all;
    buffer_kind kind;
    size_t users, out, n_idle; /* number of users; of buffers in use; of idle buffers */
    size_t more; /* number of idle buffers that are kept beyond two for each user (pd_buffer_pool_keep_more) */
    /* The idle buffers. They are not linked through their own memory: workers can read the memory of a segment, and
     * must not see addresses of the daemon. There is room for all buffers of the pool, so a buffer can always
     * return. */
    void **idle;
    size_t room;   /* number of buffers that `idle` has room for */
    size_t erased; /* number of idle buffers, the first ones in `idle`, that lie in a segment and have no pages */
    idle_struct *structs; /* idle structs (pd_buffer_pool_take_struct), linked through their memory */
    size_t n_structs;
};

static pd_buffer_pool *make(pd_buffer_pools *all, buffer_kind kind)
{
    pd_buffer_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL) return NULL;
    pool->all = all;
    pool->kind = kind;
    HASH_ADD(hh, all->table, kind, sizeof kind, pool);
    if (pool->hh.tbl == NULL) {
        free(pool);
        return NULL;
    }
    if (kind.shared != NULL) kind.shared->refs++;
    return pool;
}

pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, pd_shared_weights *shared, size_t bytes)
{
    const buffer_kind wanted = { shared, bytes };
    pd_buffer_pool *pool;

    HASH_FIND(hh, all->table, &wanted, sizeof wanted, pool);
    if (pool == NULL && (pool = make(all, wanted)) == NULL) return NULL;
    pool->users++;
    return pool;
}

/* Returns a new buffer of the segment, or of private memory if there is no segment or it is used up. */
static void *new_buffer(const buffer_kind *kind)
{
    void *at = kind->shared != NULL ? pd_shared_weights_take(kind->shared, kind->bytes) : NULL;

    return at != NULL ? at : pd_pages_new(kind->bytes);
}

/* Frees a buffer of private memory. A buffer in a segment is freed with the segment. */
static void free_buffer(const buffer_kind *kind, void *at)
{
    if (kind->shared != NULL && pd_segment_has(pd_shared_weights_segment(kind->shared), at, kind->bytes)) return;
    free(at);
}

/* Takes an idle buffer out of the pool: if possible, one that has not lost its pages (erase_idle). */
static void *take_idle(pd_buffer_pool *pool)
{
    pool->n_idle--;
    if (pool->n_idle < pool->erased)
        pool->erased--;
    else
        pool->all->idle -= pool->kind.bytes;
    return pool->idle[pool->n_idle];
}

static void discard_idle(pd_buffer_pool *pool, size_t keep)
{
    while (pool->n_idle > keep) free_buffer(&pool->kind, take_idle(pool));
}

/* Frees the memory of idle buffers beyond `keep`. A buffer in a segment loses its pages, but stays in
 * `idle`, because the segment does not hand out its place again. */
static void erase_idle(pd_buffer_pool *pool, size_t keep)
{
    const pd_segment *segment = pd_shared_weights_segment(pool->kind.shared);

    while (pool->n_idle - pool->erased > keep) {
        void **at = &pool->idle[pool->erased];
        pool->all->idle -= pool->kind.bytes;
        if (pd_segment_has(segment, *at, pool->kind.bytes)) {
            pd_segment_erase(segment, *at, pool->kind.bytes);
            pool->erased++;
        } else {
            free(*at);
            *at = pool->idle[--pool->n_idle];
        }
    }
}

static void discard_structs(pd_buffer_pool *pool)
{
    while (pool->n_structs > pool->users) {
        idle_struct *gone = pool->structs;
        pool->structs = gone->next;
        pool->n_structs--;
        free(gone);
    }
}

/* Frees idle buffers and structs beyond those that the users need; of buffers in a segment, only the pages. Frees the
 * pool as well, if it has no users and all its buffers are back. */
static void trim(pd_buffer_pool *pool)
{
    size_t keep = IDLE_PER_USER * pool->users + pool->more;

    discard_structs(pool);
    if (pool->users > 0 && pool->kind.shared != NULL)
        erase_idle(pool, keep);
    else
        discard_idle(pool, keep);
    if (pool->users > 0 || pool->out > 0) return;
    HASH_DEL(pool->all->table, pool);
    pd_shared_weights_unref(pool->kind.shared);
    free(pool->idle);
    free(pool);
}

void pd_buffer_pool_keep_more(pd_buffer_pool *pool, bool more)
{
    if (more)
        pool->more++;
    else
        pool->more--;
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
    void *at;

    if (pool->n_idle > 0) {
        at = take_idle(pool);
    } else if (pd_grow((void **)&pool->idle, &pool->room, pool->out + 1, sizeof *pool->idle) != PD_OK ||
               (at = new_buffer(&pool->kind)) == NULL) {
        return NULL;
    }
    pool->out++;
    pool->all->used += pool->kind.bytes;
    return at;
}

void pd_buffer_pool_give(pd_buffer_pool *pool, void *at)
{
    if (at == NULL) return;
    assert(pool->out > 0 && pool->n_idle < pool->room);
    pool->out--;
    pool->all->used -= pool->kind.bytes;
    pool->all->idle += pool->kind.bytes;
    pool->idle[pool->n_idle++] = at;
    trim(pool);
}

void *pd_buffer_pool_take_struct(pd_buffer_pool *pool, size_t bytes)
{
    idle_struct *idle = pool != NULL ? pool->structs : NULL;

    assert(bytes >= sizeof *idle);
    if (idle == NULL) return pd_zeroed(bytes);
    pool->structs = idle->next;
    pool->n_structs--;
    return memset(idle, 0, bytes);
}

void pd_buffer_pool_give_struct(pd_buffer_pool *pool, void *at)
{
    idle_struct *idle = at;

    if (pool == NULL) {
        free(at);
        return;
    }
    *idle = (idle_struct){ pool->structs };
    pool->structs = idle;
    pool->n_structs++;
    discard_structs(pool);
}

uint64_t pd_buffer_pool_own_bytes(void)
{
    return sizeof(pd_buffer_pool);
}
