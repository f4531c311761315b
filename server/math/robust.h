/* robust.h - averages that a minority cannot spoil: coordinate-wise median and trimmed mean. Pure; any thread.
 *
 * Yin, Chen, Kannan, Bartlett: Byzantine-robust distributed learning (2018). Each element by itself: the k values
 * are sorted, the `trim` smallest and the `trim` largest are left out, the others averaged (summed in ascending
 * order in float64, rounded once). NaN sorts after +infinity whatever its sign, so up to `trim` values of an
 * element that are not finite, or are as large as anyone likes, leave a result that is finite and between two of
 * the others. The median is the trimmed mean that keeps one or two: the middle one, or the mean of the two in the
 * middle. Results do not depend on the order of the vectors, nor on how elements are cut into calls. */
#ifndef PD_ROBUST_H
#define PD_ROBUST_H

#include "sources.h"

/* The largest `trim` of k vectors, (k - 1) / 2, which is the median. */
int pd_median_trim(int k);

/* Bytes of scratch that a call needs (at most 256 KiB up to 4096 vectors), aligned as floats are; one a thread. */
size_t pd_trimmed_mean_scratch(int k);
/* to[i] = trimmed mean of x[0][i] ... x[k - 1][i], 0 <= trim <= pd_median_trim(k). `to` may be one of the float32
 * sources, from its beginning. True: every result is finite. */
bool pd_trimmed_mean(float *to, int64_t n, const pd_source *x, int k, int trim, void *scratch);

#endif
