/* kernels.h - sums, scales and multiplies long vectors, and checks them for NaN and infinities. Pure functions; any
 * thread. Every function gives the same bits on every CPU. The comment of a function says how a caller may divide its
 * work among threads without changing a bit. */
#ifndef PD_KERNELS_H
#define PD_KERNELS_H

#include "vector_runs.h"

/* A term of a sum: a vector times the number `weight`. */
typedef struct pd_addend {
    pd_vector_run run;
    float weight;
} pd_addend;

/* Computes the sum of k vectors of n elements, each times its weight: acc[i] = w0 x0[i] + w1 x1[i] + ..., where addend
 * x[j] has the weight wj and the elements xj. Adds strictly in this order. With `resume` the first term is the old
 * acc[i]. Each product and each sum is rounded to float32. At the end each sum is divided by `divisor`, unless that
 * is 1. If k is 0, the sum is the old acc[i] with `resume`, otherwise 0.
 *
 * Returns the largest magnitude of a result (pd_largest).
 *
 * Addends must not overlap acc. One exception: without `resume`, the first addend may be acc itself.
 *
 * This is one pass over memory: each addend is read once, and acc is written once. The bits of the result do not depend
 * on how a caller divides the elements or the addends among several calls. */
float pd_accumulate(float *acc, int64_t n, bool resume, const pd_addend *x, int k, float divisor);

/* Returns the largest magnitude of an element of a vector; 0 if the vector is empty. Infinity counts as larger than all
 * numbers, and NaN as larger than infinity. So the result is finite if and only if all elements are. */
float pd_largest(const float *x, int64_t n);
/* Returns the larger of two results of pd_largest, in the same order of infinity and NaN. */
float pd_larger(float a, float b);

/* Return whether all elements of a vector, or elements [first, first + n) of a run, are finite: none is infinite or
 * NaN. */
bool pd_all_finite(const void *at, pd_dtype dtype, int64_t n);
bool pd_vector_run_is_finite(const pd_vector_run *run, int64_t first, int64_t n);
bool pd_all_finite_f64(const double *x, int64_t n);

/* Return the sum of squares of x, or the dot product of x and y, over n elements in float64. Element i is added to lane
 * i mod 16; at the end the 16 lanes are added pairwise. So the bits depend on n and the values alone. If threads share
 * a vector, let each thread sum a fixed range, and add the sums of the ranges in order. */
double pd_sum_squares(const float *x, int64_t n);
double pd_dot(const float *x, const float *y, int64_t n);

/* Multiplies a vector by the number `by`: to[i] = by from[i]. `to` may be `from`. */
void pd_scale(float *to, const float *from, float by, int64_t n);

#endif
