/* kernels.h - passes over long vectors: sums of gradients, finiteness, products. Pure; any thread.
 *
 * Every function gives the same bits on every CPU and however the caller cuts its work into threads, as each says. */
#ifndef PD_KERNELS_H
#define PD_KERNELS_H

#include "paramd/tensor.h"

typedef struct pd_addend {
    const void *at;
    pd_dtype    dtype;
    float       weight;
} pd_addend;

/* acc[i] = ((resume ? acc[i] : nothing) + w0 x0[i]) + w1 x1[i] ... strictly in that order, each product and each
 * sum rounded to float32; without `resume` the first product starts the sum. Then divided by `divisor` unless that
 * is 1. With k = 0 it only divides (without `resume`: zeros). Addends must not overlap acc, but for the first,
 * which may be acc itself where `resume` is not. True: every result is finite. One pass over memory: each addend
 * is read once, acc written once. Bits do not depend on how elements or addends are cut into calls. */
bool pd_accumulate(float *acc, int64_t n, bool resume, const pd_addend *x, int k, float divisor);

/* No element is infinite or NaN. */
bool pd_all_finite(const void *at, pd_dtype dtype, int64_t n);
bool pd_all_finite_f64(const double *x, int64_t n);

/* Sums over n elements in float64, in 16 lanes (element i belongs to lane i mod 16) that are added pairwise at the
 * end: the bits depend on n and the values alone. Where threads share a vector each sums a fixed range, and the
 * ranges are added in order. */
double pd_sum_squares(const float *x, int64_t n);
double pd_dot(const float *x, const float *y, int64_t n);

/* to[i] = by from[i]; `to` may be `from`. */
void   pd_scale(float *to, const float *from, float by, int64_t n);

#endif
