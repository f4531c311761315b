/* payloads.c - divides the ingest budget among ranks, pools memory by size class, and counts the users of a worker's
 * segment. */
#include "payloads.h"

#include "frame.h"
#include "mutant.h"
#include "store_config.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int pd_admission_join(pd_admission *admission, pd_quota *quota, uint64_t reserve, pd_error *err)
{
    uint64_t others = admission->reserved - quota->reserve;

    assert(reserve > 0);
    if (reserve > admission->budget || others > admission->budget - reserve)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "this rank needs %llu bytes of the ingest budget, which are not free now: try again when "
                       "another job has ended, raise limits.ingest_bytes (%llu), or lower limits.max_payload",
                       (unsigned long long)reserve, (unsigned long long)admission->budget);
    if (quota->reserve == 0) admission->ranks++;
    admission->reserved = others + reserve;
    quota->reserve = reserve;
    return PD_OK;
}

void pd_admission_leave(pd_admission *admission, pd_quota *quota)
{
    if (quota->reserve == 0) return;
    admission->reserved -= quota->reserve;
    admission->ranks--;
    quota->reserve = 0;
}

bool pd_admission_take(pd_admission *admission, pd_quota *quota, uint64_t bytes)
{
    uint64_t most = quota->reserve + pd_spare_part(admission->budget - admission->reserved, admission->ranks);

    if (quota->reserve == 0 && admission->used > 0 && admission->used + bytes > admission->budget) return false;
    assert(quota->reserve == 0 || bytes <= quota->reserve);
    if (quota->reserve > 0 && quota->charged > 0) {
        if (quota->charged + bytes > most) return false;
        /* The rank's share has room, but the budget may have none: payload buffers of ranks that have left count
         * against it until they are freed. */
        if (admission->used + bytes > admission->budget) return false;
    }
    quota->charged += bytes;
    admission->used += bytes;
    return true;
}

void pd_admission_give(pd_admission *admission, pd_quota *quota, uint64_t bytes)
{
    if (PD_MUTANT(budget_leak) && quota == NULL) return;
    assert(admission->used >= bytes && (quota == NULL || quota->charged >= bytes));
    admission->used -= bytes;
    if (quota != NULL) quota->charged -= bytes;
}

/* Bytes of a slab of the smallest size class. A slab is the memory of one buffer. The slabs of the next classes have
 * 1.5, 2, 3, 4, 6, 8 ... times as many bytes. */
#define LEAST 4096u
#define CLASSES 96
#define ALIGNMENT 64u
/* Slabs of this many bytes or more come from mmap, so that freeing returns them to the kernel. */
#define MAPPED (1024u * 1024u)
#define HUGE_PAGE (2u * 1024u * 1024u)
/* New slabs of this many bytes or more are allocated on another thread, because that takes time. */
#define PREPARED (64u * 1024u)

typedef struct slab {
    pd_buffer buffer; /* must be the first member: when a buffer is returned to the pool, its address is cast to a
                       * slab */
    struct slab *next;
    unsigned class;
    struct pd_pool *pool;
    pd_background work; /* task for another thread: it allocates the slab's memory */
} slab;

struct pd_pool {
    uint64_t limit, used, kept;
    slab *unused[CLASSES];
    unsigned coming[CLASSES]; /* number of slabs of each size class that other threads are allocating */
    uint64_t making;          /* bytes of all slabs that other threads are allocating */
    bool failed;              /* another thread could not allocate a slab, and no frame has been refused for it yet */
    pd_platform platform;     /* the threads that allocate memory; if its `background` is NULL, there are none, and the
                               * loop thread allocates */
    void (*ready)(void *arg);
    void *arg;
};

static size_t class_bytes(unsigned class)
{
    size_t power = (size_t)LEAST << (class / 2);
    return class % 2 == 0 ? power : power + power / 2;
}

static unsigned class_of(size_t size)
{
    unsigned class = 0;
    while (class < CLASSES && class_bytes(class) < size) class ++;
    return class;
}

/* Maps memory. If it has 2 MiB or more, it begins at a multiple of 2 MiB, so that the kernel can use huge pages for
 * it. */
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

/* Allocates the memory of a slab. May run on any thread. Returns NULL if out of memory. */
static uint8_t *make(size_t size)
{
    return size >= MAPPED ? map(size) : aligned_alloc(ALIGNMENT, size);
}

static slab *slab_new(pd_pool *pool, unsigned class)
{
    slab *s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->class = class;
    s->pool = pool;
    return s;
}

static void slab_free(slab *s)
{
    size_t size = class_bytes(s->class);

    if (s->buffer.at == NULL || size < MAPPED)
        free(s->buffer.at);
    else
        munmap(s->buffer.at, size);
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

/* Frees unused slabs, the largest first, until `size` more bytes fit into the pool's limit. */
static void make_room(pd_pool *pool, size_t size)
{
    for (unsigned class = CLASSES; class -- > 0 && pool->kept > 0;) {
        while (pool->unused[class] != NULL && pool->used + pool->kept + pool->making + size > pool->limit)
            slab_free(take_unused(pool, class));
    }
}

static void keep(pd_pool *pool, slab *s)
{
    s->next = pool->unused[s->class];
    pool->unused[s->class] = s;
    pool->kept += class_bytes(s->class);
}

static slab *slab_of(pd_background *work)
{
    return (slab *)(void *)((char *)work - offsetof(slab, work));
}

/* Allocates the memory of a slab and populates its pages, which takes time. Runs on another thread. */
static void prepare(pd_background *work)
{
    slab *s = slab_of(work);
    size_t size = class_bytes(s->class), page = (size_t)sysconf(_SC_PAGESIZE);

    s->buffer.at = make(size);
    for (size_t at = 0; s->buffer.at != NULL && at < size; at += page) *(volatile uint8_t *)(s->buffer.at + at) = 0;
}

/* Adds a slab to the pool's unused ones, when another thread has allocated its memory. If the thread could not, the
 * pool refuses the next frame that asks again. */
static void prepared(pd_background *work)
{
    slab *s = slab_of(work);
    pd_pool *pool = s->pool;

    pool->coming[s->class]--;
    pool->making -= class_bytes(s->class);
    pool->failed = s->buffer.at == NULL;
    if (pool->failed)
        slab_free(s);
    else
        keep(pool, s);
    pool->ready(pool->arg);
}

static int order(pd_pool *pool, unsigned class)
{
    slab *s = slab_new(pool, class);

    if (s == NULL) return PD_NO_MEMORY;
    make_room(pool, class_bytes(class));
    s->work = (pd_background){ .run = prepare, .done = prepared };
    if (!pool->platform.background(pool->platform.arg, &s->work)) {
        slab_free(s);
        return PD_NO_MEMORY;
    }
    pool->coming[class]++;
    pool->making += class_bytes(class);
    return PD_UNAVAILABLE;
}

/* Has another thread allocate a slab for a frame, unless one is being allocated for it. Returns PD_UNAVAILABLE: the
 * frame must wait. `asked`: the frame has asked before. Its slab may have been given to another frame or freed; then
 * another slab is allocated. PD_NO_MEMORY: an allocation has failed. */
static int wait_for(pd_pool *pool, unsigned class, bool asked)
{
    if (!asked) return order(pool, class);
    if (pool->coming[class] > 0) return PD_UNAVAILABLE;
    if (!pool->failed) return order(pool, class);
    pool->failed = false;
    return PD_NO_MEMORY;
}

static slab *make_now(pd_pool *pool, unsigned class)
{
    slab *s = slab_new(pool, class);

    if (s == NULL) return NULL;
    make_room(pool, class_bytes(class));
    s->buffer.at = make(class_bytes(class));
    if (s->buffer.at != NULL) return s;
    slab_free(s);
    return NULL;
}

pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg)
{
    pd_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL) return NULL;
    pool->limit = limit;
    if (platform != NULL) pool->platform = *platform;
    pool->ready = ready;
    pool->arg = arg;
    return pool;
}

void pd_pool_free(pd_pool *pool)
{
    if (pool == NULL) return;
    assert(pool->used == 0);
    for (unsigned class = 0; class < CLASSES; class ++)
        while (pool->unused[class] != NULL) slab_free(take_unused(pool, class));
    free(pool);
}

int pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out)
{
    unsigned class = class_of(size);
    slab *s;

    if (class == CLASSES) return PD_NO_MEMORY;
    s = take_unused(pool, class);
    if (s == NULL && pool->platform.background != NULL && class_bytes(class) >= PREPARED)
        return wait_for(pool, class, asked);
    if (s == NULL) s = make_now(pool, class);
    if (s == NULL) return PD_NO_MEMORY;
    pool->used += class_bytes(class);
    s->buffer = (pd_buffer){ .conn = conn, .charged = size, .size = size, .at = s->buffer.at };
    *out = &s->buffer;
    return PD_OK;
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
    keep(pool, s);
}

uint64_t pd_pool_used(const pd_pool *pool)
{
    return pool->used;
}
uint64_t pd_pool_kept(const pd_pool *pool)
{
    return pool->kept;
}

struct pd_loan {
    pd_background work; /* must be the first member: the address of the task that unmaps the segment is cast to a
                         * loan */
    pd_segment segment;
    uint64_t refs;
};

int pd_loan_new(pd_loan **out, int fd, uint64_t bytes, pd_error *err)
{
    pd_segment segment;
    int rc = pd_segment_map_full(&segment, fd, bytes, err);

    if (rc != PD_OK) return rc;
    if ((*out = calloc(1, sizeof **out)) == NULL) {
        pd_segment_drop(&segment);
        return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    }
    (*out)->segment = segment;
    (*out)->refs = 1;
    return PD_OK;
}

static void unmap_segment(pd_background *work)
{
    pd_segment_drop(&((pd_loan *)work)->segment);
}

static void free_loan(pd_background *work)
{
    free(work);
}

static void unref(pd_loan *loan, const pd_platform *platform)
{
    if (--loan->refs > 0) return;
    loan->work = (pd_background){ .run = unmap_segment, .done = free_loan };
    if (platform->background != NULL && platform->background(platform->arg, &loan->work)) return;
    unmap_segment(&loan->work);
    free_loan(&loan->work);
}

void pd_loan_unref(pd_loan *loan, const pd_platform *platform)
{
    if (loan == NULL) return;
    if (PD_MUTANT(loan_ends_with_connection)) pd_segment_drop(&loan->segment);
    unref(loan, platform);
}

bool pd_loan_has(const pd_loan *loan, uint32_t place, uint64_t bytes)
{
    uint64_t first = (uint64_t)place * PD_PAYLOAD_ALIGN;
    uint64_t beyond = PD_MUTANT(loan_has_a_unit_more) ? PD_PAYLOAD_ALIGN : 0;

    return first < loan->segment.bytes && bytes <= loan->segment.bytes - first + beyond;
}

pd_buffer *pd_loan_buffer(pd_loan *loan, uint64_t conn, uint32_t place, uint64_t bytes)
{
    pd_buffer *buffer = calloc(1, sizeof *buffer);

    assert(pd_loan_has(loan, place, bytes));
    if (buffer == NULL) return NULL;
    *buffer = (pd_buffer){
        .conn = conn, .size = bytes, .at = loan->segment.at + (uint64_t)place * PD_PAYLOAD_ALIGN, .lender = loan
    };
    loan->refs++;
    return buffer;
}

void pd_loan_return(pd_buffer *buffer, const pd_platform *platform)
{
    pd_loan *loan = buffer->lender;

    free(buffer);
    unref(loan, platform);
}
