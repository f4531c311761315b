/* sources.h - several vectors of equal length, each in runs wherever they happen to lie, of any element type.
 * Pure; any thread. */
#ifndef PD_SOURCES_H
#define PD_SOURCES_H

#include "paramd/tensor.h"

/* A run of elements as somebody has given them. `at` NULL: zeros. */
typedef struct pd_source {
    const void *at;
    pd_dtype    dtype;
} pd_source;

/* k vectors, all cut at the same places: run p is elements [ends[p - 1], ends[p]) (the first begins at 0, the last
 * ends where the vectors do), and at[p * k + r] is where vector r has it. Borrowed: all of it stays where it is,
 * and as it is, while it is in use. */
typedef struct pd_vectors {
    int              k;
    size_t           n_runs;
    const int64_t   *ends;
    const pd_source *at;
} pd_vectors;

/* The run that element `i` lies in. */
size_t pd_vectors_run(const pd_vectors *v, int64_t i);

/* Elements [first, first + n) of vector r, which begin in run p: where they lie, if they do in one run of float32,
 * else in `tile`, converted. Where `room` is larger than n it is always the tile, followed by zeros up to there. */
const float *pd_vectors_load(const pd_vectors *v, int r, size_t p, int64_t first, int64_t n, int64_t room, float *tile);

#endif
