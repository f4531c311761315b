/* unread.c - counts earlier weights that answers still have. */
#include "unread.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

struct pd_unread {
    pd_account *account; /* of the job */
    bool left;           /* the account does not count them, since the job ends or has ended */
    bool ended;          /* the job is no more: the next two count them, once the loop thread has forgotten the job */
    pd_budget *all, *whose;
    pd_owner *owner; /* keeps `whose`; NULL: there is none */
    bool forgotten;
    uint32_t number;        /* of the job */
    unsigned refs;          /* one of the job, one of each version that is unread */
    uint64_t published;     /* bytes of the weights that are published now */
    uint64_t bytes;         /* of those that were replaced and that answers have */
    uint64_t segment;       /* of the job's segment, after the job's end */
    uint64_t charged;       /* how many of them count */
    pd_unread *prev, *next; /* in the list of jobs that have ended: pd_budget.unread */
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

static uint64_t due(const pd_unread *unread)
{
    if (!unread->left) return unread->bytes > unread->published ? unread->bytes - unread->published : 0;
    return unread->ended && unread->forgotten && unread->bytes > 0 ? unread->bytes + unread->segment : 0;
}

/* Counts as many bytes as are due. */
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
