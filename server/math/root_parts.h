/* root_parts.h - ridges, memory and conversions for the methods of root.h; not for other modules. Pure; any thread. */
#ifndef PD_ROOT_PARTS_H
#define PD_ROOT_PARTS_H

#include <stddef.h>

#include "root_types.h"

/* Returns the ridge of a matrix whose largest eigenvalue is `largest`: epsilon * max(largest, 1e-6). A NaN stays a
 * NaN. */
double pd_root_ridge(double epsilon, double largest);

/* Returns the ridge of the iteration of higher order: max(epsilon * bound, 1e-16). `bound` is not below the largest
 * eigenvalue. A NaN stays a NaN. */
double pd_root_bounded_ridge(double epsilon, double bound);

/* Returns the exponent of the requested root as a positive number: q / p for the coupled iterations, otherwise
 * want->exponent. */
double pd_root_exponent(const pd_root_want *want);

/* Allocates `count` matrices (n, n) with elements of `size` bytes, and `more` bytes behind the last matrix. The
 * memory is aligned to 64 bytes; free it with free(). NULL: out of memory, or the size overflows. */
void *pd_root_room(int64_t n, int64_t count, size_t size, size_t more);

/* Copy A to a dense float64 matrix (n, n), and a float64 matrix to X, rounded to float32. */
void pd_root_widen(double *to, pd_mat A);
void pd_root_narrow(pd_mat X, const double *from);

/* Returns whether X is finite: no element is infinite or NaN. */
bool pd_root_is_finite(pd_mat X);

#endif
