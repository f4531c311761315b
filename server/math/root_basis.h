/* root_basis.h - roots from eigenvectors: what root_eigh.c and root_tracked.c share; for them alone. Pure; any thread.
 *
 * A basis Q (n, n) holds one eigenvector in each row: A = Q' diag(values) Q. */
#ifndef PD_ROOT_BASIS_H
#define PD_ROOT_BASIS_H

#include <stdbool.h>
#include <stdint.h>

#include "root_types.h"

/* The root's function of an eigenvalue x: (max(x - lift, 0) + ridge)^(2 half). */
typedef struct pd_form {
    double lift;                /* PD_RIDGE_SHIFTED: the least eigenvalue where that is negative; else 0 */
    double ridge;
    double half;                /* half the exponent, negative for an inverse root */
    int    p;                   /* the root is the inverse p-th one; 0: that is no whole number */
} pd_form;

/* What `want` says without knowing A: half and p. The rest is 0. */
pd_form pd_form_of(const pd_root_want *want);
/* What is added to A: relative to its largest eigenvalue, or as it is. */
double pd_form_ridge(const pd_root_want *want, double largest);
/* The square root of the root's eigenvalue. */
double pd_form_half(const pd_form *form, double eigenvalue);

/* Q <- the eigenvectors of A by ssyevd, X <- the root made of them. A stays; Q may be X, and then only the root
 * remains. Fills the form, and the report but for `error` (and that too where form->p is 0). Errors as in root.h;
 * Q then holds nothing of use. */
int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report);

/* From A's least and largest eigenvalue, computed with rounding unit `eps`: fills the report's `largest` and
 * `condition`, and the form. PD_OUT_OF_RANGE: they are not finite, or without a relative ridge A is singular up to
 * rounding. */
int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n, const pd_root_want *want);

/* The residual of a root: *error <- |X^a (A + ridge I) X^b v - v| / |v|, a = p / 2 rounded down, b = p - a, v of
 * fixed pseudo-random signs. In float64, one matrix and vector after the other. The root stands on both sides of A
 * because X^p A magnifies the rounding of the largest eigenvalues by the condition number, and this only by its
 * square root. PD_OUT_OF_RANGE: X or the residual is not finite. */
int pd_basis_check(double *error, pd_mat X, pd_factor A, double ridge, int p);
/* The residual of a decomposition, for the roots that the above cannot measure: *error <- |Q' diag(values) Q v - A
 * v| / (|v| max |values|). */
int pd_basis_residual(double *error, pd_mat Q, const double *values, pd_factor A);
/* The last look at a root made by `form`: as pd_basis_check where form->p is a number; else the error stays, and X
 * is to be finite. */
int pd_basis_finish(double *error, pd_mat X, pd_factor A, const pd_form *form);

/* y <- M x, M (n, n). Sums have lanes of their own: same bits on every CPU. */
void pd_basis_apply(double *y, pd_mat M, const double *x);
/* n pseudo-random signs, the same each time. */
void pd_basis_signs(double *v, int64_t n);

#endif
