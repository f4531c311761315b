/* root_types.h - declares the request for a root of a matrix, the report about the result, and the functions of each
 * method.
 *
 * A root is X = (A + ridge I)^(-1/p) of a symmetric positive semi-definite matrix A (n, n), or a power with another
 * exponent. A (n >= 1) is symmetric up to rounding or quantizing, dense or strided, and not changed. Both halves of X
 * are written.
 *
 * Errors: PD_NO_MEMORY, and PD_OUT_OF_RANGE in these cases:
 *   - A, the root or its error is not finite;
 *   - LAPACK failed;
 *   - the error of an iteration of higher order is above 0.1.
 *
 * After an error X is undefined. report.error is NaN or infinite then, except if X exceeds the range of float32, or if
 * the error is too large: then it may be a number. */
#ifndef PD_ROOT_TYPES_H
#define PD_ROOT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "linalg.h"
#include "paramd/error.h"

/* The names of the methods that compute roots, as choices of a hyperparameter, in the order of pd_root_method. */
#define PD_ROOT_METHODS "newton|eigh|eigh64|tracked"
typedef enum pd_root_method {
    PD_ROOT_NEWTON, /* Newton's iteration in float64, exactly as Google's Distributed Shampoo computes it. */
    /* symmetric eigendecomposition in float32; with PD_RIDGE_SHIFTED small matrices are decomposed in float64 */
    PD_ROOT_EIGH,
    PD_ROOT_EIGH64, /* symmetric eigendecomposition in float64 */
    /* Eigendecomposition in float32 that reuses the eigenvectors of the last decomposition as long as the error stays
     * small, and decomposes anew if it is too large. */
    PD_ROOT_TRACKED,
    /* Eigendecomposition by QR iterations in float32 from the last eigenvectors, as in Meta's matrix_functions.py. It
     * is not run to its end: the eigenvalues are those of the basis that was reached (pd_eigenbasis_iterate). */
    PD_ROOT_QR,
    /* Newton's iteration in float32, as in Meta's matrix_functions.py. The ridge is epsilon itself. Negative
     * eigenvalues are not raised to 0. The root is that of the last iteration, even if the iteration did not converge;
     * report.error may then be NaN. An error is returned only if the root is not finite. */
    PD_ROOT_COUPLED,
    /* An iteration of higher order than Newton's (Lakic 1998), as in Meta's matrix_functions.py. The ridge is relative
     * to an upper bound of the largest eigenvalue: max(epsilon * bound, 1e-16). */
    PD_ROOT_HIGHER_ORDER,
} pd_root_method;

/* How the ridge is computed. */
typedef enum pd_ridge {
    PD_RIDGE_RELATIVE, /* as in Google's program: the ridge is epsilon * max(largest eigenvalue, 1e-6) */
    /* As in Meta's program: the ridge is epsilon itself. If the smallest eigenvalue is negative, all eigenvalues are
     * first raised by the same number, so that the smallest one is 0.
     *
     * Matrices of one element and exactly diagonal matrices are computed element by element, whatever the method. Their
     * eigenvalues are not raised. */
    PD_RIDGE_SHIFTED,
} pd_ridge;

/* Which root to compute, and how. */
typedef struct pd_root_want {
    pd_root_method method;
    int p;          /* the inverse p-th root is computed, X = (A + ridge I)^(-1/p); >= 1 */
    double epsilon; /* the number from which the ridge is computed, see pd_ridge and pd_root_method; >= 0 */
    /* Only for PD_ROOT_NEWTON: A counts as the top left corner of a matrix with this many rows, with `padding` on the
     * rest of the diagonal; nothing is padded in memory. 0 or n: no padding. Other methods ignore this member. */
    int64_t padded_side;
    double padding; /* 1, or 0 */
    /* A root whose error is not below this (or is NaN) is computed again, if `retries` > 0. INFINITY: only after a
     * failure. */
    double most_error;
    /* Largest number of retries, 0 or more. The first retry is an eigendecomposition in float64 with the same ridge.
     * Each further retry has an epsilon ten times larger (0 stays 0). */
    int retries;
    pd_ridge ridge;
    /* With PD_RIDGE_SHIFTED and the methods eigh, eigh64 and tracked, the root is X = (A + ridge I)^-exponent, where
     * the exponent is any finite number; p is ignored. `tracked` reuses eigenvectors only if 1 / exponent is a whole
     * number up to 64. */
    double exponent;
    int q; /* only for PD_ROOT_HIGHER_ORDER: the root is (A + ridge I)^(-q/p); 0 counts as 1 */
    /* For PD_ROOT_COUPLED and PD_ROOT_HIGHER_ORDER: the iteration ends when max |M - I| is at most this. M is a matrix
     * that converges to the identity I; max |.| is the largest absolute value of an element. For PD_ROOT_QR: the
     * tolerance of pd_eigenbasis_iterate. */
    double tolerance;
    /* for PD_ROOT_COUPLED, PD_ROOT_HIGHER_ORDER and PD_ROOT_QR: the iteration ends after this many steps */
    int iterations;
    int order; /* Only for PD_ROOT_HIGHER_ORDER: order of the iteration, from 2 on. Order 2 is Newton's iteration. */
    /* Only for PD_RIDGE_SHIFTED and the methods eigh, eigh64 and qr: a pseudo-inverse is computed, without ridge and
     * lift. Eigenvalues of at most max(rank_rtol times the largest one, rank_atol) count as 0, and so do those of the
     * root in their place. */
    bool pseudo;
    double rank_rtol, rank_atol;
} pd_root_want;

typedef enum pd_root_end {
    PD_ENDED_CONVERGED,
    /* The iteration did not converge within want.iterations steps, or its numbers are no longer finite. */
    PD_ENDED_LIMIT,
    /* Only for PD_ROOT_HIGHER_ORDER: the largest |element| of M - I grew by more than a fifth in a step, or did not
     * change. M is a matrix that converges to the identity I. */
    PD_ENDED_EARLY,
} pd_root_end;

/* How the computation of a root went. */
typedef struct pd_root_report {
    /* The error of X: how far it is from the exact root. In these formulas I is the identity, M a matrix that converges
     * to I during an iteration, and max |.| the largest absolute value of an element. The measure depends on the
     * method:
     *
     *   - newton, coupled: max |M - I| of the last M, in float32.
     *   - higher order: max |(A + ridge I) X^p - I| with the X of q = 1.
     *   - computed element by element: 0.
     *   - qr: what is left off the diagonal of A in the last basis: its norm over that of A.
     *   - exponent that is not 1 / p for a whole p, and pseudo-inverses: |Q' L Q v - A v| / (|v| max |L|), the residual
     *     of the decomposition A = Q' L Q. L is diagonal with the eigenvalues, Q has the eigenvectors as rows, and Q'
     *     is its transpose.
     *   - all others: |X^a (A + ridge I) X^b v - v| / |v|, with a = p / 2 rounded down and b = p - a.
     *
     * The last two use a fixed pseudo-random vector v. The last one takes p + 1 matrix-vector products. (pd_basis_check
     * says why A stands between the powers.) */
    double error;
    /* The estimate of A's largest eigenvalue from which the ridge was computed. For newton it is the estimate for the
     * padded A, for coupled the Frobenius norm of A + ridge I, for higher order an upper bound. */
    double largest;
    /* Estimated condition number of A + ridge I, without padding. Meaningless if the error is large. */
    double condition;
    /* For the methods newton, coupled and higher order: number of steps of the iteration. For tracked: 1 if the root
     * was computed with the last eigenvectors, 0 if the matrix was decomposed anew. */
    int iterations;
    int tries;         /* number of times that the root was computed; 1: there was no retry */
    bool decomposed;   /* whether the matrix was decomposed into eigenvectors */
    pd_root_end ended; /* for PD_ROOT_COUPLED and PD_ROOT_HIGHER_ORDER: why the iteration ended */
} pd_root_report;

/* A matrix as an operand of a product: the float64 matrix `wide` (dense, same size as A) if that is not NULL, otherwise
 * the float32 matrix A. */
typedef struct pd_factor {
    pd_mat A;
    const double *wide;
} pd_factor;

/* Largest number of rows of a matrix that root_eigh.c decomposes in float64 instead of float32. */
enum { PD_ROOT_SMALL = 128 };

/* Returns the relative ridge of a matrix whose largest eigenvalue is `largest`: epsilon * max(largest, 1e-6). If
 * `largest` is NaN, the ridge is NaN. */
double pd_root_ridge(double epsilon, double largest);

/* Returns the ridge for the iteration of higher order: max(epsilon * bound, 1e-16). `bound` is an upper bound of the
 * largest eigenvalue. If it is NaN, the ridge is NaN. */
double pd_root_bounded_ridge(double epsilon, double bound);

/* Returns e of the root (A + ridge I)^-e that `want` requests: 1 / p for PD_ROOT_COUPLED, q / p for
 * PD_ROOT_HIGHER_ORDER, otherwise want->exponent. */
double pd_root_exponent(const pd_root_want *want);

/* Allocates `count` matrices of n rows and n columns with elements of `size` bytes, and `more` bytes after the last
 * matrix. The memory is aligned to 64 bytes; the caller frees it with free(). Returns NULL if out of memory, or if the
 * size overflows. */
void *pd_root_room(int64_t n, int64_t count, size_t size, size_t more);

/* pd_root_widen copies a float32 matrix A to a dense float64 matrix. pd_root_narrow copies a dense float64 matrix to
 * the float32 matrix X, rounding each element. */
void pd_root_widen(double *to, pd_mat A);
void pd_root_narrow(pd_mat X, const double *from);

/* Returns whether the matrix X is finite: no element is infinite or NaN. */
bool pd_root_is_finite(pd_mat X);

/* Returns whether a matrix is diagonal: every element off the diagonal is zero. A matrix of one element is diagonal. */
bool pd_root_is_diagonal(pd_factor A);
/* Computes the root X <- (A + epsilon I)^-exponent of a diagonal matrix A, and fills the report. PD_OUT_OF_RANGE: X is
 * not finite. */
int pd_root_of_diagonal(pd_mat X, pd_factor A, const pd_root_want *want, pd_root_report *report);

/* Compute a root as pd_root does for PD_ROOT_EIGH and PD_ROOT_EIGH64, but without retries and without the shortcut for
 * diagonal matrices. */
int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_eigh64(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
/* Computes the root of a dense float64 A (n, n) in float64, and rounds X to float32 at the end. Only for eigh64 with
 * PD_RIDGE_SHIFTED; no retries. A may exceed the range of float32. */
int pd_root_wide(pd_mat X, const double *A, const pd_root_want *want, pd_root_report *report);

/* Compute a root as pd_root does for PD_ROOT_COUPLED and PD_ROOT_HIGHER_ORDER, but without retries and without the
 * shortcut for diagonal matrices. */
int pd_root_coupled(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_higher_order(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Computes a root as pd_root does for PD_ROOT_QR, but without retries. */
int pd_root_qr(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Computes a root as pd_root does for PD_ROOT_NEWTON, but without retries and without the shortcut for diagonal
 * matrices. */
int pd_root_newton(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Computes a root like pd_root does for PD_ROOT_TRACKED, but without retries and without the shortcut for diagonal
 * matrices. */
int pd_root_tracked(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

/* Estimates the largest eigenvalue of A, which has n rows and n columns, by power iteration in float64 from a fixed
 * start vector, as the function `power_iteration` in Google's program does: at most 100 steps, absolute tolerance 1e-6.
 * PD_OUT_OF_RANGE: the estimate, which *largest then contains, is not finite. PD_NO_MEMORY: out of memory.
 *
 * A is only read. If padded_side is above n, A counts as the top left corner of a matrix with padded_side rows, which
 * has `padding` on the rest of its diagonal.
 *
 * `v` may be NULL. Otherwise the last vector, of padded_side (or n) numbers, is stored there. They are NaN for a matrix
 * of zeros. */
int pd_power_iteration(double *largest, double *v, const double *A, int64_t n, int64_t padded_side, double padding);
/* Writes the first n elements of the fixed start vector of the power iteration: random numbers of the generator MT19937
 * with seed 1729, uniform on [-1, 1). */
void pd_start_vector(double *v, int64_t n);

#endif
