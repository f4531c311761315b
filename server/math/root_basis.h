/* root_basis.h - computes roots from eigenvectors; used by root_eigh.c and root_tracked.c only. Pure functions; any
 * thread.
 *
 * A basis Q of a matrix A has the eigenvectors of A as its rows: A = Q' diag(values) Q, with the eigenvalues
 * `values`. */
#ifndef PD_ROOT_BASIS_H
#define PD_ROOT_BASIS_H

#include <stdbool.h>
#include <stdint.h>

#include "root_types.h"

/* The function that turns an eigenvalue x of a matrix A into an eigenvalue of A's root: (max(x - lift, 0) + ridge)^(2
 * half). The ridge is a number that keeps the result finite if x is 0. */
typedef struct pd_form {
    /* Number that is subtracted from each eigenvalue. With PD_RIDGE_SHIFTED it is the smallest eigenvalue if that is
     * negative, otherwise 0. */
    double lift;
    double ridge;
    double half; /* half the exponent of the root; negative for an inverse root */
    int p; /* the root is the inverse p-th root of the matrix. 0: its exponent is not 1/p for any whole number p */
} pd_form;

/* Returns a pd_form (how eigenvalues become those of the root) with the members that follow from the request `want`
 * alone: half and p. The members that depend on the matrix are 0. */
pd_form pd_form_of(const pd_root_want *want);
/* Returns the ridge, the number that is added to the matrix's diagonal before its root is taken. It is relative to the
 * largest eigenvalue, or absolute, as `want` says. */
double pd_form_ridge(const pd_root_want *want, double largest);
/* Turns an eigenvalue of a matrix into an eigenvalue of the matrix's root, and returns the square root of the
 * latter. */
double pd_form_half(const pd_form *form, double eigenvalue);

/* Decomposes the matrix A by LAPACK's ssyevd, and computes its root from the eigenvectors. Q gets the eigenvectors, X
 * the root. If Q and X are the same matrix, only the root is kept. A is not changed.
 *
 * Fills the form and the report, but report->error only if form->p is 0. Errors are those of root_types.h. After an
 * error, Q is undefined. */
int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report);

/* Fills `largest` and `condition` of the report, and the form, from the smallest and the largest eigenvalue of a matrix
 * A, which were computed with rounding unit `eps`. PD_OUT_OF_RANGE: an eigenvalue is not finite; or the ridge is
 * relative but 0, and A is singular up to rounding. */
int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n,
                   const pd_root_want *want);

/* Computes the error of an inverse p-th root X of A + ridge I: *error <- |X^a (A + ridge I) X^b v - v| / |v|, with a =
 * p / 2 rounded down, b = p - a, and a vector v of fixed pseudo-random signs. Works in float64, one matrix-vector
 * product after the other. PD_OUT_OF_RANGE: X or the error is not finite.
 *
 * A stands between powers of X to keep rounding errors small. X^p A would magnify the errors of the largest eigenvalues
 * by the condition number; this form magnifies them only by its square root. */
int pd_basis_check(double *error, pd_mat X, pd_factor A, double ridge, int p);
/* Computes the error of an eigendecomposition A = Q' diag(values) Q, for roots whose own error pd_basis_check cannot
 * measure: *error <- |Q' diag(values) Q v - A v| / (|v| max |values|), with a vector v of fixed pseudo-random signs. */
int pd_basis_residual(double *error, pd_mat Q, const double *values, pd_factor A);
/* Checks a matrix root X that was computed with `form` (how eigenvalues became those of the root). If form->p is not 0,
 * *error becomes the error that pd_basis_check measures; otherwise *error is left as it is, as long as X is finite.
 * PD_OUT_OF_RANGE: X or the error is not finite. */
int pd_basis_finish(double *error, pd_mat X, pd_factor A, const pd_form *form);

/* Computes the product y <- M x of a matrix M (n rows, n columns) and a vector. Each sum is split into partial sums in
 * a fixed way, so the bits are the same on every CPU. */
void pd_basis_apply(double *y, pd_mat M, const double *x);
/* Writes n pseudo-random signs, 1 or -1, to v. Every call writes the same ones. */
void pd_basis_signs(double *v, int64_t n);

#endif
