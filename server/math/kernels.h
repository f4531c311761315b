/* kernels.h - passes over long vectors: sums of gradients, checks for NaN and infinities, products. Pure; any
 * thread. Every function gives the same bits on every CPU. The comment of a function says how a caller may divide
 * its work among threads without changing a bit. */
#ifndef PD_KERNELS_H
#define PD_KERNELS_H

#include "paramd/tensor.h"

typedef struct pd_addend {
    const void *at;
    pd_dtype dtype;
    float weight;
} pd_addend;

/* Computes acc[i] = w0 x0[i] + w1 x1[i] + ..., strictly in this order. With `resume` the first term is the old
 * acc[i]. Each product and each sum is rounded to float32. At the end each sum is divided by `divisor`, unless
 * `divisor` is 1. If k is 0, the sum is the old acc[i] with `resume`, otherwise 0.
 *
 * Returns whether every result is finite.
 *
 * Addends must not overlap acc. One exception: without `resume`, the first addend may be acc itself.
 *
 * This is one pass over memory: each addend is read once, and acc is written once. The bits do not depend on how
 * elements or addends are divided into calls. */
bool pd_accumulate(float *acc, int64_t n, bool resume, const pd_addend *x, int k, float divisor);

/* Returns whether no element is infinite or NaN. */
bool pd_all_finite(const void *at, pd_dtype dtype, int64_t n);
bool pd_all_finite_f64(const double *x, int64_t n);

/* Return a sum over n elements in float64: of the squares, or of the products. There are 16 lanes: element i is
 * added to lane i mod 16, and the lanes are added pairwise at the end. So the bits depend on n and the values alone.
 * Where threads share a vector, let each thread sum a fixed range, and add the sums of the ranges in order. */
double pd_sum_squares(const float *x, int64_t n);
double pd_dot(const float *x, const float *y, int64_t n);

/* Writes to[i] = by from[i]. `to` may be `from`. */
void pd_scale(float *to, const float *from, float by, int64_t n);

#endif
