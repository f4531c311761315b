/* vector_runs.h - reads vectors of equal length and any element type that are stored as runs: ranges of elements, each
 * in memory of its own. Pure functions; any thread. */
#ifndef PD_VECTOR_RUNS_H
#define PD_VECTOR_RUNS_H

#include "paramd/tensor.h"

/* A run: elements of a vector that are contiguous in memory, in the element type that the worker sent. If `at` is NULL,
 * all elements of the run are zero. */
typedef struct pd_vector_run {
    const void *at; /* the run's first element; of a quantized type the beginning of the piece that contains it */
    pd_dtype dtype;
    /* of a quantized type: number of the piece's elements before the run; number of all its elements */
    int64_t skip, of;
} pd_vector_run;

/* Returns the run that begins at element `skip` of the `of` elements at `at`, which are one piece if the type is
 * quantized (block_codec.h). */
pd_vector_run pd_vector_run_of(const void *at, pd_dtype dtype, int64_t skip, int64_t of);
/* Writes elements [first, first + n) of a run as float32 to `to`. run->at is not NULL. */
void pd_vector_run_read(float *to, const pd_vector_run *run, int64_t first, int64_t n);

/* k vectors that are all cut into runs at the same elements. Run p has the elements [ends[p - 1], ends[p]); the first
 * run begins at element 0, and the last one ends where the vectors end. at[p * k + r] is run p of vector r. All memory
 * is borrowed, and must stay in place and unchanged while it is in use. */
typedef struct pd_vectors {
    int k;
    size_t n_runs;
    const int64_t *ends;
    const pd_vector_run *at;
} pd_vectors;

/* Returns the index of the run that contains element `i`. */
size_t pd_vectors_run(const pd_vectors *v, int64_t i);

/* Returns elements [first, first + n) of vector r as float32. Element `first` must be in run p. If all n elements lie
 * in one run of float32, the result points into that run; otherwise they are converted into `tile`. If `room` is larger
 * than n, the result is always `tile`, and zeros fill it up to `room` elements. */
const float *pd_vectors_load(const pd_vectors *v, int r, size_t p, int64_t first, int64_t n, int64_t room, float *tile);

#endif
