/* root.h - roots of matrices by any method, with retries; and their cost. Pure; any thread; the functions allocate
 * their work memory. */
#ifndef PD_ROOT_H
#define PD_ROOT_H

#include "root_types.h"

/* Computes the matrix root that `want` describes, with retries. X and the report are those of the first good try, or of
 * the last try. After running out of memory there is no retry.
 *
 * Q (n, n) is used by the method `tracked` alone; for others Q.at is NULL. It holds the last eigenbasis, one
 * eigenvector in each row, or zeros if there is none yet. The new basis is written into it. A Q that is not orthogonal
 * counts as none. After an error Q is unchanged, or all zeros. */
int pd_root(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Returns an estimate of the floating-point operations of one matrix root. The scheduler uses it: of the tasks that are
 * due the largest run first. */
double pd_root_flops(pd_root_method method, int64_t n, int p);
/* Returns the most bytes that computing a matrix root allocates. X, Q and A are not counted. `retried`: the memory of a
 * retry by eigh64 counts, too. */
int64_t pd_root_scratch(pd_root_method method, bool retried, int64_t n, int p);

#endif
