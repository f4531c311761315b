/* mailbox.c - passes mail from any thread to the one thread that owns the mailbox, under one lock. */
#include "mailbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct pd_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pd_mail *first, *last;
    bool closed;
    void (*wake)(void *arg); /* function that the posting thread calls after a post into the empty mailbox; NULL:
                              * none */
    void *arg;
};

pd_mailbox *pd_mailbox_new(void (*wake)(void *arg), void *arg)
{
    pd_mailbox *box = calloc(1, sizeof *box);
    pthread_condattr_t attr;

    if (box == NULL) return NULL;
    box->wake = wake;
    box->arg = arg;
    pthread_mutex_init(&box->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&box->more, &attr);
    pthread_condattr_destroy(&attr);
    return box;
}

void pd_mailbox_free(pd_mailbox *box)
{
    if (box == NULL) return;
    pthread_cond_destroy(&box->more);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

int pd_mailbox_post(pd_mailbox *box, pd_mail *first, pd_mail *last)
{
    bool was_empty, closed;

    last->next = NULL;
    pthread_mutex_lock(&box->lock);
    closed = box->closed;
    was_empty = box->first == NULL;
    if (!closed) {
        if (was_empty)
            box->first = first;
        else
            box->last->next = first;
        box->last = last;
        if (was_empty) pthread_cond_signal(&box->more);
    }
    pthread_mutex_unlock(&box->lock);
    if (closed) return PD_UNAVAILABLE;
    if (was_empty && box->wake != NULL) box->wake(box->arg);
    return PD_OK;
}

/* Removes all mail from the mailbox and returns it. Called with the lock held. */
static pd_mail *take_all(pd_mailbox *box)
{
    pd_mail *all = box->first;
    box->first = box->last = NULL;
    return all;
}

pd_mail *pd_mailbox_take(pd_mailbox *box)
{
    pd_mail *all;
    pthread_mutex_lock(&box->lock);
    all = take_all(box);
    pthread_mutex_unlock(&box->lock);
    return all;
}

pd_mail *pd_mailbox_wait(pd_mailbox *box, uint64_t deadline_ns, bool *closed)
{
    struct timespec until = { .tv_sec = (time_t)(deadline_ns / 1000000000u),
                              .tv_nsec = (long)(deadline_ns % 1000000000u) };
    pd_mail *all;
    int rc = 0;

    pthread_mutex_lock(&box->lock);
    while (box->first == NULL && !box->closed && rc == 0) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&box->more, &box->lock);
        else
            rc = pthread_cond_timedwait(&box->more, &box->lock, &until);
    }
    all = take_all(box);
    *closed = box->closed;
    pthread_mutex_unlock(&box->lock);
    return all;
}

void pd_mailbox_close(pd_mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->closed = true;
    pthread_cond_broadcast(&box->more);
    pthread_mutex_unlock(&box->lock);
}
