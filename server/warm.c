/* warm.c - touches memory ahead of its user, in a thread of its own. */
#include "warm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14 on; older ones refuse it, and nothing is gained */
#endif

/* Bytes that are touched at a time: whoever wants the memory back waits no longer than for these. */
enum { PIECE = 2 << 20 };

struct pd_warmer {
    pd_numa numa;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one of the fields below has changed */
    uint8_t *at;            /* memory to touch: `left` bytes */
    size_t left;
    bool busy, stop; /* the thread touches a piece now; it has to end */
};

/* Waits for memory to touch, and takes a piece of it. Returns 0 when the thread has to end. */
static size_t take_piece(pd_warmer *warmer, uint8_t **at)
{
    size_t bytes = 0;

    pthread_mutex_lock(&warmer->lock);
    while (warmer->left == 0 && !warmer->stop) pthread_cond_wait(&warmer->changed, &warmer->lock);
    if (!warmer->stop) {
        bytes = warmer->left < PIECE ? warmer->left : PIECE;
        *at = warmer->at;
        warmer->at += bytes;
        warmer->left -= bytes;
        warmer->busy = true;
    }
    pthread_mutex_unlock(&warmer->lock);
    return bytes;
}

/* Ends a piece. If the kernel has refused it, the rest is left to its user, who meets the error if there is one. */
static void end_piece(pd_warmer *warmer, bool done)
{
    pthread_mutex_lock(&warmer->lock);
    if (!done) warmer->left = 0;
    warmer->busy = false;
    pthread_cond_broadcast(&warmer->changed);
    pthread_mutex_unlock(&warmer->lock);
}

static void *run(void *arg)
{
    pd_warmer *warmer = arg;
    uint8_t *at;
    size_t bytes;

    (void)pd_numa_prefer(&warmer->numa);
    while ((bytes = take_piece(warmer, &at)) > 0) end_piece(warmer, madvise(at, bytes, MADV_POPULATE_WRITE) == 0);
    return NULL;
}

void pd_warmer_put(void *arg, void *at, size_t bytes)
{
    pd_warmer *warmer = arg;

    pthread_mutex_lock(&warmer->lock);
    warmer->left = 0;
    while (warmer->busy) pthread_cond_wait(&warmer->changed, &warmer->lock);
    warmer->at = at;
    warmer->left = bytes;
    pthread_cond_broadcast(&warmer->changed);
    pthread_mutex_unlock(&warmer->lock);
}

static void free_warmer(pd_warmer *warmer)
{
    pthread_cond_destroy(&warmer->changed);
    pthread_mutex_destroy(&warmer->lock);
    free(warmer);
}

int pd_warmer_start(pd_warmer **out, const pd_numa *numa, pd_error *err)
{
    pd_warmer *warmer = calloc(1, sizeof *warmer);

    if (warmer == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    warmer->numa = *numa;
    pthread_mutex_init(&warmer->lock, NULL);
    pthread_cond_init(&warmer->changed, NULL);
    if (pthread_create(&warmer->thread, NULL, run, warmer) == 0) {
        *out = warmer;
        return PD_OK;
    }
    free_warmer(warmer);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "the thread that touches memory of jobs cannot be started");
}

void pd_warmer_stop(pd_warmer *warmer)
{
    if (warmer == NULL) return;
    pthread_mutex_lock(&warmer->lock);
    warmer->stop = true;
    pthread_cond_broadcast(&warmer->changed);
    pthread_mutex_unlock(&warmer->lock);
    pthread_join(warmer->thread, NULL);
    free_warmer(warmer);
}
