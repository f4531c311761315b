/* power_iteration.h - Google's estimate of the largest eigenvalue. */
#ifndef PD_POWER_ITERATION_H
#define PD_POWER_ITERATION_H

#include <stdint.h>

#include "paramd/error.h"

/* Estimates the largest eigenvalue by power iteration in float64 from a fixed start vector (google_shampoo's page,
 * 5.2): at most 100 steps, absolute tolerance 1e-6. A (n, n) is only read; it is padded as pd_root_want says. v:
 * NULL, or gets the last vector, padded_side (or n) numbers: NaN of a zero matrix. PD_OUT_OF_RANGE: A's quotient
 * is not finite, and *largest is it. PD_NO_MEMORY. */
int pd_power_iteration(double *largest, double *v, const double *A, int64_t n, int64_t padded_side, double padding);
/* Writes the start vector's first n entries: MT19937 of seed 1729, uniform on [-1, 1). */
void pd_start_vector(double *v, int64_t n);

#endif
