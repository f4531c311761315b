/* pass.c - the arithmetic that `paramctl bench` adds to the CPU time of bare TCP: what no server can save that adds
 * gradients and takes steps. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Passes that are timed: the median counts. Elements that are added at a time fit into the CPU's cache. */
enum { PASSES = 3, RANGE = 16 * 1024 };

/* The arrays of a pass, of n numbers each. */
typedef struct arrays {
    size_t n;
    int workers;
    float **gradients; /* of each worker */
    float *mean, *momentum, *before, *after;
} arrays;

static float *array_new(size_t n)
{
    float *at = malloc(n * sizeof *at);

    for (size_t i = 0; at != NULL && i < n; i++) at[i] = (float)(i % 17) * 1e-3f;
    return at;
}

static void arrays_free(arrays *a)
{
    for (int w = 0; a->gradients != NULL && w < a->workers; w++) free(a->gradients[w]);
    free(a->gradients);
    free(a->mean);
    free(a->momentum);
    free(a->before);
    free(a->after);
}

static bool arrays_make(arrays *a, int workers, size_t n)
{
    bool all;

    *a = (arrays){
        n,           workers, calloc((size_t)workers, sizeof *a->gradients), array_new(n), array_new(n), array_new(n),
        array_new(n)
    };
    all = a->gradients != NULL && a->mean != NULL && a->momentum != NULL && a->before != NULL && a->after != NULL;
    for (int w = 0; all && w < workers; w++) all = (a->gradients[w] = array_new(n)) != NULL;
    return all;
}

static void add_range(const arrays *a, size_t first, size_t end)
{
    const float share = 1.0f / (float)a->workers;

    memcpy(a->mean + first, a->gradients[0] + first, (end - first) * sizeof(float));
    for (int w = 1; w < a->workers; w++)
        for (size_t i = first; i < end; i++) a->mean[i] += a->gradients[w][i];
    for (size_t i = first; i < end; i++) a->mean[i] *= share;
}

static void step(const arrays *a)
{
    const float *mean = a->mean, *before = a->before;
    float *momentum = a->momentum, *after = a->after;

    for (size_t i = 0; i < a->n; i++) {
        momentum[i] = 0.9f * momentum[i] + mean[i];
        after[i] = before[i] - 0.01f * momentum[i];
    }
}

static double cpu_seconds(void)
{
    struct timespec at;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double time_pass(const arrays *a)
{
    double begun = cpu_seconds();

    for (size_t first = 0; first < a->n; first += RANGE)
        add_range(a, first, a->n - first < RANGE ? a->n : first + RANGE);
    step(a);
    return cpu_seconds() - begun;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pd_pass_seconds(int workers, size_t bytes)
{
    double s[PASSES] = { 0 };
    arrays a;

    if (arrays_make(&a, workers, bytes / sizeof(float))) {
        time_pass(&a);
        for (int i = 0; i < PASSES; i++) s[i] = time_pass(&a);
    }
    arrays_free(&a);
    qsort(s, PASSES, sizeof *s, by_size);
    return s[PASSES / 2];
}
