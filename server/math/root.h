/* root.h - computes a root of a matrix by any method, with retries, and estimates its cost. Pure functions, which
 * allocate their work memory; any thread. */
#ifndef PD_ROOT_H
#define PD_ROOT_H

#include "root_types.h"

/* Computes the root X of the matrix A that `want` describes. Tries again as want->retries says, until the error of X is
 * below want->most_error. X and the report are the result of the last try. PD_NO_MEMORY is returned at once, without
 * another try. Other errors are those of root_types.h.
 *
 * Q (n, n) is used by the methods `tracked` and `qr` alone; for other methods Q.at is NULL. Q contains the last
 * eigenbasis, and the new one is written into it.
 *
 *   - tracked: Q has one eigenvector in each row, or zeros if there is none yet. A Q that is not orthogonal is treated
 *     as zeros. After an error Q is unchanged, or all zeros.
 *   - qr: Q has one eigenvector in each column, at first those of the identity. After an error Q is undefined. */
int pd_root(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Returns an estimate of the floating-point operations of one matrix root. The preconditioner pool orders tasks by it:
 * the largest runs first. */
double pd_root_flops(pd_root_method method, int64_t n, int p);
/* Returns the largest number of bytes that computing a matrix root allocates, not counting X, Q and A. With `retried`,
 * a retry by eigh64 is taken into account. */
int64_t pd_root_scratch(pd_root_method method, bool retried, int64_t n, int p);

#endif
