/* root_basis.h - computes roots from eigenvectors; used by root_eigh.c, root_tracked.c and root_qr.c only. Pure
 * functions; any thread.
 *
 * A basis Q of a matrix A has the eigenvectors of A as its rows: A = Q' diag(values) Q, with the eigenvalues
 * `values`. */
#ifndef PD_ROOT_BASIS_H
#define PD_ROOT_BASIS_H

#include <stdbool.h>
#include <stdint.h>

#include "root_types.h"

/* The function that maps an eigenvalue x of a matrix A to an eigenvalue of A's root: (max(x - lift, 0) + ridge)^(2
 * half). */
typedef struct pd_form {
    /* Number that is subtracted from each eigenvalue. With PD_RIDGE_SHIFTED it is the smallest eigenvalue if that is
     * negative, otherwise 0. */
    double lift;
    double ridge;
    double cut;  /* the root has 0 in place of eigenvalues up to this number (pd_root_want.pseudo); -INFINITY: none */
    double half; /* half the exponent of X = (A + ridge I)^exponent; negative for an inverse root */
    int p;       /* the root is the inverse p-th root; 0: its exponent is not 1/p for a whole number p */
} pd_form;

/* Returns the pd_form for the request `want`. Sets only half and p; lift and ridge depend on the matrix, and are 0. */
pd_form pd_form_of(const pd_root_want *want);
/* Returns the ridge for a matrix whose largest eigenvalue is `largest`. want->ridge says whether the ridge is relative
 * to it or absolute. */
double pd_form_ridge(const pd_root_want *want, double largest);
/* Returns the square root of the eigenvalue of the root that belongs to this eigenvalue of the matrix. */
double pd_form_half(const pd_form *form, double eigenvalue);

/* Decomposes the matrix A by LAPACK's ssyevd, and computes its root from the eigenvectors. Q gets the eigenvectors, X
 * the root. If Q and X are the same matrix, only the root is kept. A is not changed.
 *
 * Fills *form and *report, but report->error only if form->p is 0 (otherwise pd_basis_finish computes it). Errors are
 * those of root_types.h. After an error, Q is undefined. */
int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report);

/* Fills report->largest, report->condition and *form from the smallest and the largest eigenvalue of a matrix, which
 * were computed with rounding unit `eps`. PD_OUT_OF_RANGE: an eigenvalue is not finite; or the ridge is relative but 0,
 * and the matrix is singular up to rounding. */
int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n,
                   const pd_root_want *want);

/* Computes the error of an inverse p-th root X of A + ridge I: *error <- |X^a (A + ridge I) X^b v - v| / |v|, with a =
 * p / 2 rounded down, b = p - a, and a vector v of fixed pseudo-random signs. Works in float64, one matrix-vector
 * product after the other. PD_OUT_OF_RANGE: X or the error is not finite.
 *
 * A stands between powers of X to keep rounding errors small. X^p A would magnify the errors of the largest eigenvalues
 * by the condition number, X^a A X^b magnifies them by its square root. */
int pd_basis_check(double *error, pd_mat X, pd_factor A, double ridge, int p);
/* Computes the error of an eigendecomposition A = Q' diag(values) Q, for roots whose own error pd_basis_check cannot
 * measure: *error <- |Q' diag(values) Q v - A v| / (|v| max |values|), with a vector v of fixed pseudo-random signs. */
int pd_basis_residual(double *error, pd_mat Q, const double *values, pd_factor A);
/* Checks a matrix root X that was computed with `form`. If form->p is not 0, sets *error to the error that
 * pd_basis_check measures; otherwise leaves *error as it is if X is finite. PD_OUT_OF_RANGE: X or the error is not
 * finite. */
int pd_basis_finish(double *error, pd_mat X, pd_factor A, const pd_form *form);

/* Computes the product y <- M x of a matrix M (n rows, n columns) and a vector. Each sum is split into partial sums in
 * a fixed way, so the bits are the same on every CPU. */
void pd_basis_apply(double *y, pd_mat M, const double *x);
/* Writes n pseudo-random signs, 1 or -1, to v. Every call writes the same signs. */
void pd_basis_signs(double *v, int64_t n);

#endif
