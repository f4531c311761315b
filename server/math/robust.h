/* robust.h - computes averages on which a minority of the vectors has little influence: the median and the trimmed mean
 * of each element. Pure functions; any thread. Source: Yin, Chen, Kannan, Bartlett: Byzantine-robust distributed
 * learning (2018).
 *
 * Each element is averaged separately. Its k values are sorted, and the `trim` smallest and the `trim` largest are left
 * out. The other values are summed in ascending order in float64, and their mean is rounded once. The median is the
 * trimmed mean of only the one or two values in the middle.
 *
 * NaN sorts after +infinity whatever its sign. So if up to `trim` values of an element are arbitrarily large or not
 * finite, the result is still finite and lies between two of the other values. Results do not depend on the order of
 * the vectors, nor on how elements are cut into calls. */
#ifndef PD_ROBUST_H
#define PD_ROBUST_H

#include "vector_runs.h"

/* Returns (k - 1) / 2: the number of values to leave out at each end so that the trimmed mean of k values is their
 * median. No larger `trim` is allowed. */
int pd_median_trim(int k);

/* Returns the bytes of scratch memory that pd_trimmed_mean needs for k vectors, at most 256 KiB for up to 4096 vectors.
 * Each thread needs its own, aligned as floats are. */
size_t pd_trimmed_mean_scratch(int k);
/* Writes the trimmed mean of each element: to[i] is the mean of x[0][i] ... x[k - 1][i] without the `trim` smallest and
 * the `trim` largest, 0 <= trim <= pd_median_trim(k). No x[r].at is NULL. `to` may be the memory of one of the vectors,
 * if this vector is float32. Returns the largest magnitude of a result (pd_largest). */
float pd_trimmed_mean(float *to, int64_t n, const pd_vector_run *x, int k, int trim, void *scratch);

#endif
