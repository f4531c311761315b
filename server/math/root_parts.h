/* root_parts.h - helpers that the methods of root.h share; for them alone. Pure; any thread. */
#ifndef PD_ROOT_PARTS_H
#define PD_ROOT_PARTS_H

#include <stddef.h>

#include "root_types.h"

/* epsilon * max(largest, 1e-6): the ridge of a matrix whose largest eigenvalue is `largest`. A NaN passes. */
double pd_root_ridge(double epsilon, double largest);

/* max(epsilon * bound, 1e-16): the ridge of the iteration of higher order. `bound` is not below the largest
 * eigenvalue. A NaN passes. */
double pd_root_bounded_ridge(double epsilon, double bound);

/* The exponent of the root that PD_RIDGE_SHIFTED wants, positive for an inverse one: q / p of the coupled
 * iterations, and else `exponent`. */
double pd_root_exponent(const pd_root_want *want);

/* Memory for `count` matrices (n, n) of elements of `size` bytes and `more` bytes behind them, aligned to 64; the
 * matrices follow each other without gaps. Gives: free() it. NULL: out of memory, or more bytes than can be
 * counted. */
void *pd_root_room(int64_t n, int64_t count, size_t size, size_t more);

/* to (n, n) without gaps <- A, and back, rounded to float32. */
void pd_root_widen(double *to, pd_mat A);
void pd_root_narrow(pd_mat X, const double *from);

/* No element of X is infinite or NaN. */
bool pd_root_is_finite(pd_mat X);

#endif
