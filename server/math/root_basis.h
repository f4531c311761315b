/* root_basis.h - roots from eigenvectors: what root_eigh.c and root_tracked.c share; for them alone. Pure; any thread.
 *
 * A basis Q (n, n) holds one eigenvector in each row: A = Q' diag(values) Q. */
#ifndef PD_ROOT_BASIS_H
#define PD_ROOT_BASIS_H

#include <stdint.h>

#include "linalg.h"
#include "root.h"

/* Q <- the eigenvectors of A by ssyevd, X <- the root made of them. A stays; Q may be X, and then only the root remains. Fills the report
 * but for `error`. Errors as in root.h; Q then holds nothing of use. */
int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* From A's least and largest eigenvalue, computed with rounding unit `eps`: fills the report's `largest` and `condition`, and *ridge.
 * PD_OUT_OF_RANGE: they are not finite, or without a ridge A is singular up to rounding. */
int pd_basis_judge(pd_root_report *report, double *ridge, double least, double largest, double eps, int64_t n, double epsilon);

/* The residual of a root: *error <- |X^a (A + ridge I) X^b v - v| / |v|, a = p / 2 rounded down, b = p - a, v of fixed pseudo-random signs.
 * In float64, one matrix and vector after the other. The root stands on both sides of A because X^p A magnifies the rounding of the
 * largest eigenvalues by the condition number, and this only by its square root. PD_OUT_OF_RANGE: X or the residual is not finite. */
int pd_basis_check(double *error, pd_mat X, pd_mat A, double ridge, int p);

/* y <- M x, M (n, n). Sums have lanes of their own: same bits on every CPU. */
void pd_basis_apply(double *y, pd_mat M, const double *x);
/* n pseudo-random signs, the same each time. */
void pd_basis_signs(double *v, int64_t n);

#endif
