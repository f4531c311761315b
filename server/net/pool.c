#include "pool.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LEAST     4096u                 /* smallest class; then 1.5, 2, 3, 4, 6, 8 ... times this */
#define CLASSES   96
#define ALIGNMENT 64u
#define MAPPED    (1024u * 1024u)       /* from this size on memory comes from mmap, so that freeing gives it back */
#define HUGE_PAGE (2u * 1024u * 1024u)

typedef struct slab {
    pd_buffer    buffer;                /* first: a pd_buffer of ours is a slab */
    struct slab *next;
    unsigned     class;
} slab;

struct pd_pool {
    uint64_t limit, used, kept;
    slab    *unused[CLASSES];
};

static size_t class_bytes(unsigned class)
{
    size_t power = (size_t)LEAST << (class / 2);
    return class % 2 == 0 ? power : power + power / 2;
}

static unsigned class_of(size_t size)
{
    unsigned class = 0;
    while (class < CLASSES && class_bytes(class) < size) class++;
    return class;
}

/* Whole huge pages begin at 2 MiB: the kernel can only back what is aligned so. */
static uint8_t *map(size_t size)
{
    size_t whole = size >= HUGE_PAGE ? size + HUGE_PAGE : size, before;
    uint8_t *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) return NULL;
    if (whole == size) return at;
    before = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(at, before);
    munmap(at + before + size, HUGE_PAGE - before);
    madvise(at + before, size, MADV_HUGEPAGE);
    return at + before;
}

static slab *slab_new(unsigned class)
{
    slab *s = calloc(1, sizeof *s);
    size_t size = class_bytes(class);

    if (s == NULL) return NULL;
    s->class = class;
    s->buffer.at = size >= MAPPED ? map(size) : aligned_alloc(ALIGNMENT, size);
    if (s->buffer.at != NULL) return s;
    free(s);
    return NULL;
}

static void slab_free(slab *s)
{
    size_t size = class_bytes(s->class);

    if (size >= MAPPED) munmap(s->buffer.at, size);
    else free(s->buffer.at);
    free(s);
}

static slab *take_unused(pd_pool *pool, unsigned class)
{
    slab *s = pool->unused[class];

    if (s == NULL) return NULL;
    pool->unused[class] = s->next;
    pool->kept -= class_bytes(class);
    return s;
}

/* Unused buffers of other classes make room, the largest first. */
static void make_room(pd_pool *pool, size_t size)
{
    for (unsigned class = CLASSES; class-- > 0 && pool->kept > 0;) {
        while (pool->unused[class] != NULL && pool->used + pool->kept + size > pool->limit)
            slab_free(take_unused(pool, class));
    }
}

pd_pool *pd_pool_new(uint64_t limit)
{
    pd_pool *pool = calloc(1, sizeof *pool);

    if (pool != NULL) pool->limit = limit;
    return pool;
}

void pd_pool_free(pd_pool *pool)
{
    if (pool == NULL) return;
    assert(pool->used == 0);
    for (unsigned class = 0; class < CLASSES; class++)
        while (pool->unused[class] != NULL) slab_free(take_unused(pool, class));
    free(pool);
}

pd_buffer *pd_pool_get(pd_pool *pool, size_t size, uint64_t conn)
{
    unsigned class = class_of(size);
    slab *s;

    if (class == CLASSES) return NULL;
    s = take_unused(pool, class);
    if (s == NULL) {
        make_room(pool, class_bytes(class));
        s = slab_new(class);
    }
    if (s == NULL) return NULL;
    pool->used += class_bytes(class);
    s->buffer = (pd_buffer){ .conn = conn, .charged = size, .size = size, .at = s->buffer.at };
    return &s->buffer;
}

void pd_pool_put(pd_pool *pool, pd_buffer *buffer)
{
    slab *s = (slab *)buffer;
    size_t size = class_bytes(s->class);

    pool->used -= size;
    if (pool->used + pool->kept + size > pool->limit) {
        slab_free(s);
        return;
    }
    s->next = pool->unused[s->class];
    pool->unused[s->class] = s;
    pool->kept += size;
}

uint64_t pd_pool_used(const pd_pool *pool) { return pool->used; }
uint64_t pd_pool_kept(const pd_pool *pool) { return pool->kept; }
