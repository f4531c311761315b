/* warm.c - touches memory ahead of its user, in a thread of its own. */
#include "warm.h"

#include "thread.h"

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
    pd_side_thread side;
    /* protected by the lock of `side` */
    uint8_t *at; /* memory to touch: `left` bytes */
    size_t left;
    bool busy; /* the thread touches a piece now */
};

/* Waits for memory to touch, and takes a piece of it. Returns 0 when the thread has to end. */
static size_t take_piece(pd_warmer *warmer, uint8_t **at)
{
    size_t bytes = 0;

    pd_side_lock(&warmer->side);
    while (warmer->left == 0 && !warmer->side.stop) pd_side_wait(&warmer->side);
    if (!warmer->side.stop) {
        bytes = warmer->left < PIECE ? warmer->left : PIECE;
        *at = warmer->at;
        warmer->at += bytes;
        warmer->left -= bytes;
        warmer->busy = true;
    }
    pd_side_unlock(&warmer->side);
    return bytes;
}

/* Ends a piece. If the kernel has refused it, the rest is left to its user, who meets the error if there is one. */
static void end_piece(pd_warmer *warmer, bool done)
{
    pd_side_lock(&warmer->side);
    if (!done) warmer->left = 0;
    warmer->busy = false;
    pd_side_unlock(&warmer->side);
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

    pd_side_lock(&warmer->side);
    warmer->left = 0;
    while (warmer->busy) pd_side_wait(&warmer->side);
    warmer->at = at;
    warmer->left = bytes;
    pd_side_unlock(&warmer->side);
}

int pd_warmer_start(pd_warmer **out, const pd_numa *numa, pd_error *err)
{
    pd_warmer *warmer = *out = calloc(1, sizeof *warmer);

    if (warmer == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    warmer->numa = *numa;
    return pd_side_start(&warmer->side, run, warmer, "thread that touches memory of jobs", err);
}

void pd_warmer_stop(pd_warmer *warmer)
{
    if (warmer == NULL) return;
    pd_side_stop(&warmer->side);
    free(warmer);
}
