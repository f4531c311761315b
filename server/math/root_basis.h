/* root_basis.h - computes roots from eigenvectors; shared by root_eigh.c and root_tracked.c only. Pure; any thread.
 *
 * A basis Q (n, n) holds one eigenvector in each row: A = Q' diag(values) Q. */
#ifndef PD_ROOT_BASIS_H
#define PD_ROOT_BASIS_H

#include <stdbool.h>
#include <stdint.h>

#include "root_types.h"

/* The function that turns an eigenvalue x of A into an eigenvalue of the root: (max(x - lift, 0) + ridge)^(2 half). */
typedef struct pd_form {
    double lift; /* PD_RIDGE_SHIFTED: the smallest eigenvalue if it is negative; otherwise 0 */
    double ridge;
    double half; /* half the exponent, negative for an inverse root */
    int p;       /* p if the root is the inverse p-th root; 0: the exponent is not 1/p for a whole number p */
} pd_form;

/* Returns a form with the members that follow from `want` alone: half and p. The members that depend on A are 0. */
pd_form pd_form_of(const pd_root_want *want);
/* Returns the ridge that is added to A: relative to its largest eigenvalue, or absolute. */
double pd_form_ridge(const pd_root_want *want, double largest);
/* Turns an eigenvalue of A into an eigenvalue of the root, and returns the square root of that. */
double pd_form_half(const pd_form *form, double eigenvalue);

/* Decomposes A by ssyevd, and computes the root from the eigenvectors. Q gets the eigenvectors, X the root. If Q and
 * X are the same matrix, only the root is kept. A is not changed.
 *
 * Fills the form and the report, but report->error only if form->p is 0. Errors are those of root_types.h. After an
 * error, Q is undefined. */
int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report);

/* Fills the report's `largest` and `condition`, and the form, from A's smallest and largest eigenvalue, which were
 * computed with rounding unit `eps`. PD_OUT_OF_RANGE: an eigenvalue is not finite, or the ridge is relative but 0
 * and A is singular up to rounding. */
int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n,
                   const pd_root_want *want);

/* Computes the residual of a root: *error <- |X^a (A + ridge I) X^b v - v| / |v|, with a = p / 2 rounded down, b = p
 * - a, and v of fixed pseudo-random signs. Works in float64, one matrix-vector product after the other.
 * PD_OUT_OF_RANGE: X or the residual is not finite.
 *
 * A stands between powers of X to keep rounding errors small. X^p A would magnify the errors of the largest
 * eigenvalues by the condition number; this form magnifies them only by its square root. */
int pd_basis_check(double *error, pd_mat X, pd_factor A, double ridge, int p);
/* Computes the residual of a decomposition, for roots that pd_basis_check cannot measure: *error <- |Q' diag(values) Q
 * v - A v| / (|v| max |values|). */
int pd_basis_residual(double *error, pd_mat Q, const double *values, pd_factor A);
/* Checks a root that was computed with `form`. If form->p is not 0, *error becomes the residual from pd_basis_check;
 * otherwise *error is left as it is, as long as X is finite. PD_OUT_OF_RANGE: X or the residual is not finite. */
int pd_basis_finish(double *error, pd_mat X, pd_factor A, const pd_form *form);

/* Computes y <- M x for M (n, n). Sums are split into lanes in a fixed way, so the bits are the same on every CPU. */
void pd_basis_apply(double *y, pd_mat M, const double *x);
/* Writes n pseudo-random signs, 1 or -1; every call writes the same ones. */
void pd_basis_signs(double *v, int64_t n);

#endif
