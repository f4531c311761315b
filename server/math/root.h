/* root.h - roots of matrices by any method, with retries; and their cost. Pure; any thread; they allocate their
 * work memory. */
#ifndef PD_ROOT_H
#define PD_ROOT_H

#include "root_types.h"

/* As `want` says, with retries: X and the report are of the first try that is good, or of the last. Out of memory
 * is not tried again. Q (n, n): tracked alone, in and out: the last eigenbasis, an eigenvector in each row, all
 * zeros where there is none yet; else .at is NULL. What is not orthogonal counts as none, and after an error Q is
 * as it was or all zeros. */
int pd_root(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Floating-point operations of one root, an estimate: due tasks run largest first. */
double pd_root_flops(pd_root_method method, int64_t n, int p);
/* Bytes that it works with beside X, Q and A, at most. `retried`: eigh64 may have to make it. */
int64_t pd_root_scratch(pd_root_method method, bool retried, int64_t n, int p);

#endif
