/* published.c - creates and frees published versions, and counts and charges unread weights. */
#include "published.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* A published version and the pools that its buffers came from. The pools are stored here, because the parameter may
 * be gone when the published version is freed. */
typedef struct shelved {
    pd_published view; /* the published version as other files see it; must be the first member */
    pd_buffer_pool *pool[4];
    bool published;    /* the loop thread has this version as the parameter's weights */
    pd_unread *unread; /* counts the version as unread, since it was replaced; NULL: it is not counted */
} shelved;

/* Counts the structs of two published versions and of two buffer pools, and the padding of five buffers: one with the
 * sum of gradients, and two of each published version, for float32 weights and for weights of another element type. */
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
    shelved gone;

    count_no_more(whole);
    gone = *whole;
    pd_buffer_pool_give_struct(gone.pool[PD_F32], whole);
    for (int t = 0; t < 4; t++)
        if (gone.pool[t] != NULL) pd_buffer_pool_give(gone.pool[t], gone.view.at[t]);
}

pd_published *pd_published_new(pd_buffer_pool *const pool[4], int64_t elements)
{
    shelved *whole = pd_buffer_pool_take_struct(pool[PD_F32], sizeof *whole);

    if (whole == NULL) return NULL;
    whole->view.elements = elements;
    whole->view.store_refs = 1;
    memcpy(whole->pool, pool, sizeof whole->pool);
    for (int t = 0; t < 4; t++) {
        if (pool[t] == NULL || (whole->view.at[t] = pd_buffer_pool_take(pool[t])) != NULL) continue;
        free_shelved(whole);
        return NULL;
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

void pd_published_lend(pd_unread *unread, pd_published *published)
{
    ((shelved *)(void *)published)->unread = unread;
    pd_unread_add(unread, bytes_of(published));
}

void pd_published_returned(pd_published *published)
{
    count_no_more((shelved *)(void *)published);
    pd_published_unref(published);
}

/* Unread weights are charged to `account` before the job's end, and to the budgets `all` and `whose` after it. */
struct pd_unread {
    pd_account *account; /* account of the job; NULL once the job has ended */
    bool left;           /* `account` is not charged any more, because the job ends or has ended */
    bool ended;          /* the job has ended */
    /* budget of all jobs; budget of the job's owner, NULL if it has none. Both are NULL before the job's end */
    pd_budget *all, *whose;
    pd_owner *owner;        /* a reference to the owner with the budget `whose`; NULL: there is none */
    bool forgotten;         /* the loop thread has forgotten the ended job: unread weights are charged */
    uint32_t number;        /* number of the job */
    unsigned refs;          /* number of references: one of the job, one of each unread version */
    uint64_t published;     /* bytes of the weights that are published now */
    uint64_t bytes;         /* bytes of unread weights */
    uint64_t segment;       /* bytes of the job's segment of shared memory, which are charged after the job's end */
    uint64_t charged;       /* bytes that are charged now */
    pd_unread *prev, *next; /* links in the list of ended jobs, pd_budget.unread */
};

pd_unread *pd_unread_new(pd_account *account, uint32_t number)
{
    pd_unread *unread = calloc(1, sizeof *unread);

    if (unread == NULL) return NULL;
    unread->account = account;
    unread->number = number;
    unread->refs = 1;
    return unread;
}

/* Returns the bytes that must be charged now. */
static uint64_t due(const pd_unread *unread)
{
    if (!unread->left) return unread->bytes > unread->published ? unread->bytes - unread->published : 0;
    return unread->ended && unread->forgotten && unread->bytes > 0 ? unread->bytes + unread->segment : 0;
}

/* Charges the bytes that are due, in place of those that were charged before. */
static void settle(pd_unread *unread)
{
    uint64_t now = due(unread), before = unread->charged;

    unread->charged = now;
    if (!unread->ended) {
        pd_account_take(unread->account, now);
        pd_account_give(unread->account, before);
        return;
    }
    unread->all->used += now - before;
    if (unread->whose != NULL) unread->whose->used += now - before;
}

static void unref(pd_unread *unread)
{
    if (--unread->refs > 0) return;
    assert(unread->bytes == 0 && unread->charged == 0);
    if (unread->ended) DL_DELETE(unread->all->unread, unread);
    pd_owner_let_go(unread->owner);
    free(unread);
}

void pd_unread_publish(pd_unread *unread, uint64_t now, uint64_t before)
{
    unread->published += now - before;
    settle(unread);
}

void pd_unread_add(pd_unread *unread, uint64_t bytes)
{
    unread->refs++;
    unread->bytes += bytes;
    settle(unread);
}

void pd_unread_remove(pd_unread *unread, uint64_t bytes)
{
    unread->bytes -= bytes;
    settle(unread);
    unref(unread);
}

uint64_t pd_unread_stops(const pd_unread *unread)
{
    if (unread == NULL || unread->charged == 0 || pd_account_fits(unread->account, 0)) return 0;
    return unread->charged;
}

void pd_unread_leave(pd_unread *unread)
{
    if (unread == NULL) return;
    unread->left = true;
    settle(unread);
}

void pd_unread_return(pd_unread *unread)
{
    if (unread == NULL) return;
    unread->left = false;
    settle(unread);
}

void pd_unread_note_segment(pd_unread *unread, uint64_t bytes)
{
    unread->segment = bytes;
}

void pd_unread_end(pd_unread *unread, pd_owner *owner)
{
    if (unread == NULL) return;
    pd_unread_leave(unread);
    unread->ended = true;
    unread->all = unread->account->budget;
    unread->whose = unread->account->owner;
    unread->owner = unread->whose != NULL ? pd_owner_ref(owner) : NULL;
    unread->account = NULL;
    DL_APPEND(unread->all->unread, unread);
    settle(unread);
    unref(unread);
}

void pd_unread_forgotten(pd_unread *unread)
{
    unread->forgotten = true;
    settle(unread);
}

pd_unread *pd_unread_find(const pd_budget *all, uint32_t number)
{
    pd_unread *unread = all->unread;

    while (unread != NULL && unread->number != number) unread = unread->next;
    return unread;
}
