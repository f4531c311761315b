/* bell.c - waits for operations of several cores at once. */
#include "bell.h"

#include <math.h>
#include <time.h>

void pd_bell_init(pd_bell *bell)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&bell->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&bell->rung, &attr);
    pthread_condattr_destroy(&attr);
}

void pd_bell_free(pd_bell *bell)
{
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->lock);
}

void pd_bell_wait(pd_bell *bell, double end)
{
    double seconds = floor(fmin(fmax(end, 0), 1e9));
    struct timespec until = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((fmin(end, 1e9) - seconds) * 1e9) };

    pthread_cond_timedwait(&bell->rung, &bell->lock, &until);
}
