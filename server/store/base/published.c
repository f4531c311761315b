/* published.c - creates and frees published versions, whose buffers come from buffer
 * pools. */
#include "published.h"

#include <assert.h>
#include <stdlib.h>

/* A published version together with the pools that its buffers came from. It must know them itself, because the
 * parameter may be gone when the published version is freed. */
typedef struct shelved {
    pd_published view; /* the published version as other files see it; must be the first member */
    pd_buffer_pool *pool[4];
    bool published; /* the loop thread has it as the parameter's weights */
    pd_unread
        *unread; /* counts the version, which was replaced while the loop thread had it; NULL: it is not counted */
} shelved;

/* The number of bytes that is returned counts the records of two published versions and of two buffer pools, and the
 * padding of five buffers: one buffer holds the sum of gradients, and each published version has two, for float32
 * weights and for weights of one other element type. */
uint64_t pd_published_own_bytes(void)
{
    enum { ALLOCATOR = 16, BUFFERS = 5, BUFFER_END = 160 };

    return 2 * (sizeof(shelved) + ALLOCATOR) + 2 * (pd_buffer_pool_own_bytes() + ALLOCATOR) + BUFFERS * BUFFER_END;
}

static uint64_t bytes_of(const pd_published *published)
{
    uint64_t bytes = 0;

    for (int t = 0; t < 4; t++)
        if (published->at[t] != NULL)
            bytes +=
                (uint64_t)published->elements * pd_dtype_size(t == PD_UPDATE ? published->update_dtype : (pd_dtype)t);
    return bytes;
}

static void count_no_more(shelved *whole)
{
    if (whole->unread != NULL) pd_unread_remove(whole->unread, bytes_of(&whole->view));
    whole->unread = NULL;
}

static void free_shelved(shelved *whole)
{
    count_no_more(whole);
    for (int t = 0; t < 4; t++)
        if (whole->pool[t] != NULL) pd_buffer_pool_give(whole->pool[t], whole->view.at[t]);
    free(whole);
}

pd_published *pd_published_new(pd_buffer_pool *const pool[4], int64_t elements)
{
    shelved *whole = calloc(1, sizeof *whole);

    if (whole == NULL) return NULL;
    whole->view.elements = elements;
    whole->view.store_refs = 1;
    for (int t = 0; t < 4; t++) {
        if (pool[t] == NULL) continue;
        whole->pool[t] = pool[t];
        if ((whole->view.at[t] = pd_buffer_pool_take(pool[t])) == NULL) {
            free_shelved(whole);
            return NULL;
        }
    }
    return &whole->view;
}

int pd_published_widen(pd_published *published, pd_dtype dtype, pd_buffer_pool *pool)
{
    shelved *whole = (shelved *)(void *)published;

    if (published->at[dtype] != NULL) return PD_OK;
    if ((published->at[dtype] = pd_buffer_pool_take(pool)) == NULL) return PD_NO_MEMORY;
    whole->pool[dtype] = pool;
    return PD_OK;
}

void pd_published_unref(pd_published *published)
{
    if (published == NULL) return;
    assert(published->store_refs > 0);
    if (--published->store_refs == 0) free_shelved((shelved *)(void *)published);
}

void pd_published_replace(pd_unread *unread, pd_published *now, pd_published *before)
{
    shelved *new = (shelved *)(void *)now, *old = (shelved *)(void *)before;
    uint64_t more = new != NULL && !new->published ? bytes_of(now) : 0;
    uint64_t less = old != NULL && old->published ? bytes_of(before) : 0;

    if (new != NULL) new->published = true;
    if (now == before) less = 0;
    pd_unread_publish(unread, more, less);
    if (less == 0) return;
    old->published = false;
    old->unread = unread;
    pd_unread_add(unread, less);
}

void pd_published_returned(pd_published *published)
{
    count_no_more((shelved *)(void *)published);
    pd_published_unref(published);
}
