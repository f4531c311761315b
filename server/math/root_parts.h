/* root_parts.h - helpers of the methods that compute matrix roots (root.h): ridges,
 * memory and conversions; not for other modules. Pure functions; any thread. */
#ifndef PD_ROOT_PARTS_H
#define PD_ROOT_PARTS_H

#include <stddef.h>

#include "root_types.h"

/* Returns the ridge of a matrix (the number that is added to its diagonal) whose largest eigenvalue is `largest`:
 * epsilon * max(largest, 1e-6). If `largest` is NaN, the ridge is NaN. */
double pd_root_ridge(double epsilon, double largest);

/* Returns the ridge for the iteration of higher order: max(epsilon
 * * bound, 1e-16). `bound` is not below the largest eigenvalue. If it is NaN, the ridge is NaN. */
double pd_root_bounded_ridge(double epsilon, double bound);

/* Returns the exponent of the root that `want` requests, as a positive number: q / p for the coupled iterations,
 * otherwise want->exponent. */
double pd_root_exponent(const pd_root_want *want);

/* Allocates `count` matrices of n rows and n columns with elements of `size` bytes, and `more` bytes behind the last
 * matrix. The memory is aligned to 64 bytes; free it with free(). NULL: out of memory, or the size overflows. */
void *pd_root_room(int64_t n, int64_t count, size_t size, size_t more);

/* pd_root_widen copies a float32 matrix A to a dense float64 matrix. pd_root_narrow copies a dense float64 matrix to
 * the float32 matrix X, rounding each element. */
void pd_root_widen(double *to, pd_mat A);
void pd_root_narrow(pd_mat X, const double *from);

/* Returns whether the matrix X is finite: no element is infinite or NaN. */
bool pd_root_is_finite(pd_mat X);

#endif
