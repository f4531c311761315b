/* power_iteration.h - estimates the largest eigenvalue of a matrix as Google's Distributed Shampoo does. */
#ifndef PD_POWER_ITERATION_H
#define PD_POWER_ITERATION_H

#include <stdint.h>

#include "paramd/error.h"

/* Estimates the largest eigenvalue of A, which has n rows and n columns, by power iteration in float64 from a fixed
 * start vector, as the function `power_iteration` in Google's program does: at most 100 steps, absolute tolerance 1e-6.
 * PD_OUT_OF_RANGE: the estimate is not finite; it is written to *largest all the same. PD_NO_MEMORY: out of memory.
 *
 * A is only read. If padded_side is above n, A counts as the top left corner of a matrix with padded_side rows, which
 * has `padding` on the rest of its diagonal.
 *
 * `v` may be NULL. Otherwise it receives the last vector, of padded_side (or n) numbers. They are NaN for a matrix of
 * zeros. */
int pd_power_iteration(double *largest, double *v, const double *A, int64_t n, int64_t padded_side, double padding);
/* Writes the first n entries of the fixed start vector of the power iteration: random numbers of the generator MT19937
 * with seed 1729, uniform on [-1, 1). */
void pd_start_vector(double *v, int64_t n);

#endif
