/* root_types.h - the request for a root of a matrix, and the report about the result.
 *
 * A root is X = (A + ridge I)^(-1/p) of a symmetric positive semi-definite matrix A (n, n), or a power with another
 * exponent. A (n >= 1) is symmetric up to rounding or quantizing, dense or strided, and not changed. Both halves of
 * X are written.
 *
 * Errors: PD_NO_MEMORY, and PD_OUT_OF_RANGE in these cases:
 *   - A, the root or its error is not finite;
 *   - LAPACK failed;
 *   - the error of an iteration of higher order is above 0.1.
 *
 * After an error X is undefined, and report.error is NaN or infinite. It may be a number if X exceeds the range of
 * float32, or if the error is too large. */
#ifndef PD_ROOT_TYPES_H
#define PD_ROOT_TYPES_H

#include <stdbool.h>
#include "linalg.h"
#include "paramd/error.h"

/* The names of the methods as choices of a hyperparameter, in the order of pd_root_method. */
#define PD_ROOT_METHODS "newton|eigh|eigh64|tracked"
typedef enum pd_root_method {
    PD_ROOT_NEWTON, /* coupled Newton in float64, exactly as Google's Distributed Shampoo computes it */
    /* symmetric eigendecomposition in float32; with PD_RIDGE_SHIFTED small matrices are decomposed in float64 */
    PD_ROOT_EIGH,
    PD_ROOT_EIGH64,  /* symmetric eigendecomposition in float64 */
    PD_ROOT_TRACKED, /* float32, in the eigenbasis of the last decomposition; decomposes anew if the error is too
                      * large */
    /* coupled Newton in float32 with an absolute ridge epsilon, as in Meta's matrix_functions.py. Negative
     * eigenvalues are not raised to 0. The root is that of the last iteration, even if the iteration did not
     * converge; then report.error may be NaN. It is an error only if the root is not finite */
    PD_ROOT_COUPLED,
    /* coupled iteration of higher order (Lakic 1998), as in Meta's matrix_functions.py. Its ridge is relative to a
     * bound of the largest eigenvalue: max(epsilon * bound, 1e-16) */
    PD_ROOT_HIGHER_ORDER,
} pd_root_method;

/* How large the ridge is. The ridge is the number that is added to the diagonal before the root is taken. */
typedef enum pd_ridge {
    PD_RIDGE_RELATIVE, /* Google: epsilon * max(largest eigenvalue, 1e-6) */
    /* Meta: epsilon itself. If the smallest eigenvalue is negative, all eigenvalues are first raised by the same
     * number, so that the smallest one is 0.
     *
     * Matrices of one element and exactly diagonal matrices are computed element by element, whatever the method.
     * Their eigenvalues are not raised */
    PD_RIDGE_SHIFTED,
} pd_ridge;

typedef struct pd_root_want {
    pd_root_method method;
    int p;          /* >= 1 */
    double epsilon; /* >= 0 */
    /* newton: A counts as the top left corner of a matrix with this many rows, with `padding` on the rest of the
     * diagonal; nothing is padded in memory. 0 or n: no padding. Other methods ignore this member */
    int64_t padded_side;
    double padding; /* 1, or 0 */
    /* if `retries` > 0, a root whose error is not below this (or is NaN) is tried again. INFINITY: only after a
     * failure */
    double most_error;
    /* most retries, 0 or more. The first retry is by eigh64 with the same ridge. Each further retry has an epsilon
     * ten times larger (0 stays 0) */
    int retries;
    pd_ridge ridge;
    /* PD_RIDGE_SHIFTED with eigh, eigh64, tracked: X = (A + ridge I)^-exponent for any finite number; p is ignored.
     * `tracked` reuses a basis only where 1 / exponent is a whole number up to 64 */
    double exponent;
    int q;            /* higher order: the root is (A + ridge I)^(-q/p); 0 counts as 1 */
    double tolerance; /* coupled, higher order: stop when max |M - I| is at most this; M converges to I */
    int iterations;   /* coupled, higher order: stop after this many iterations */
    int order;        /* higher order: order of the iteration, from 2 on; order 2 is Newton's iteration */
} pd_root_want;

typedef enum pd_root_end {
    PD_ENDED_CONVERGED,
    PD_ENDED_LIMIT, /* all `iterations` were made without convergence, or M is no longer finite */
    PD_ENDED_EARLY, /* higher order: max |M - I| grew by more than a fifth, or did not change */
} pd_root_end;

typedef struct pd_root_report {
    /* How far X is from the exact root. The measure depends on the method:
     *
     *   - newton, coupled: max |M - I| of the last M, in float32.
     *   - higher order: max |(A + ridge I) X^p - I| with the X of q = 1.
     *   - computed element by element: 0.
     *   - exponent that is not 1 / p for a whole p: |Q' L Q v - A v| / (|v| max |L|), the residual of the decomposition
     *     with eigenvalues L.
     *   - all others: |X^a (A + ridge I) X^b v - v| / |v| for a fixed pseudo-random v, with a = p / 2 rounded down and
     *     b = p - a. This takes p + 1 matrix-vector products. With powers of X on both sides rounding errors grow by
     *     sqrt(condition); in X^p A they would grow by condition. */
    double error;
    /* the estimate of A's largest eigenvalue from which the ridge was computed. newton: that of the padded A.
     * coupled: the Frobenius norm of A + ridge I. Higher order: an upper bound */
    double largest;
    /* estimated condition number of A + ridge I without padding; meaningless if the error is large */
    double condition;
    /* newton, coupled, higher order: number of iterations. tracked: 1 if the root was computed in the last basis;
     * 0 if A was decomposed anew */
    int iterations;
    int tries;         /* number of tries; 1: the first one was good enough */
    bool decomposed;   /* A was decomposed */
    pd_root_end ended; /* coupled, higher order: why the iteration ended */
} pd_root_report;

/* The matrix A as an operand of a product: `wide` (float64, dense, same size) if set, otherwise the float32 `A`. */
typedef struct pd_factor {
    pd_mat A;
    const double *wide;
} pd_factor;

enum { PD_ROOT_SMALL = 128 }; /* largest n that root_eigh.c decomposes in float64 in place of float32 */

#endif
