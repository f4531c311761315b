/* root_types.h - what a root of a matrix is asked for with, and what is reported about it.
 *
 * A root is X = (A + ridge I)^(-1/p) of a symmetric positive semi-definite matrix A (n, n), or a power with
 * another exponent. A (n >= 1) is symmetric up to rounding or quantizing, dense or strided, and only read. X is
 * written whole, both halves. After an error X is undefined, and report.error is NaN or infinite, unless only X
 * exceeds float32 or the error is too large. Errors: PD_OUT_OF_RANGE: A, the root or its error is not finite,
 * LAPACK failed, or the error of the iteration of higher order is above 0.1. PD_NO_MEMORY. */
#ifndef PD_ROOT_TYPES_H
#define PD_ROOT_TYPES_H

#include <stdbool.h>
#include "linalg.h"
#include "paramd/error.h"

/* In this order as a hyperparameter's choices: */
#define PD_ROOT_METHODS "newton|eigh|eigh64|tracked"
typedef enum pd_root_method {
    PD_ROOT_NEWTON,             /* coupled Newton in float64, exactly as Google's Distributed Shampoo computes it */
    /* symmetric eigendecomposition in float32; with PD_RIDGE_SHIFTED small matrices are decomposed in float64 */
    PD_ROOT_EIGH,
    PD_ROOT_EIGH64,             /* in float64 */
    PD_ROOT_TRACKED,            /* float32, from the last eigenbasis; decomposes anew where that is not good enough */
    /* coupled Newton in float32 with an absolute ridge, as Meta's matrix_functions.py has it: epsilon, no lift.
     * What the last of its `iterations` leaves is the root, unless it is not finite; report.error may be NaN then */
    PD_ROOT_COUPLED,
    /* coupled iteration of higher order (Lakic 1998), as there; its ridge is relative to a bound of the largest
     * eigenvalue: max(epsilon * bound, 1e-16) */
    PD_ROOT_HIGHER_ORDER,
} pd_root_method;

/* What is added before the root. */
typedef enum pd_ridge {
    PD_RIDGE_RELATIVE,          /* Google: epsilon * max(largest eigenvalue, 1e-6) */
    /* Meta: epsilon itself, after a negative smallest eigenvalue was lifted to 0 (meta_shampoo's page, section 5).
     * A with one element, and an exactly diagonal A, are taken element by element without that lift, whatever the
     * method */
    PD_RIDGE_SHIFTED,
} pd_ridge;

typedef struct pd_root_want {
    pd_root_method method;
    int     p;                  /* >= 1 */
    double  epsilon;            /* >= 0 */
    /* newton: A counts as the top left corner of a matrix with this many rows, `padding` on the rest of the
     * diagonal; nothing is padded in memory. 0, or n: no padding. Other methods pass over it */
    int64_t padded_side;
    double  padding;            /* 1, or 0 */
    /* a root with an error of at least this, or NaN, is tried again, where `retries` > 0. INFINITY: only one that
     * failed */
    double  most_error;
    /* 0 … : first by eigh64 with the same epsilon (higher order: with what that was of the bound), then with one
     * ten times larger each time (0 stays 0) */
    int     retries;
    pd_ridge ridge;
    /* PD_RIDGE_SHIFTED, eigh, eigh64, tracked: X = (A + ridge I)^-exponent, any finite number; p is passed over.
     * Tracked follows a basis only where 1 / exponent is a whole number up to 64 */
    double  exponent;
    int     q;                  /* higher order: the root is p/q; 0 counts as 1 */
    double  tolerance;          /* coupled, higher order: stop when max |M - I| is at most this, */
    int     iterations;         /* or after so many, */
    int     order;              /* higher order: 2 … ; 2 is Newton's */
} pd_root_want;

typedef enum pd_root_end {
    PD_ENDED_CONVERGED,
    PD_ENDED_LIMIT,             /* `iterations` were taken, or M is no longer finite */
    PD_ENDED_EARLY,             /* higher order: max |M - I| grew by a fifth, or stayed as it was */
} pd_root_end;

typedef struct pd_root_report {
    /* newton, coupled: max |M - I| of the last M, in float32. Higher order: max |(A + ridge I) X^p - I| with q =
     * 1. Element by element: 0. Where 1 / exponent is no whole number: |Q' L Q v - A v| / (|v| max |L|), the
     * decomposition's. Else |X^a (A + ridge I) X^b v - v| / |v| for a fixed pseudo-random v, a = p / 2 rounded
     * down, b = p - a: p + 1 products of matrix and vector. With the root on both sides rounding counts
     * sqrt(condition) times, and not condition times as in X^p A */
    double error;
    /* the estimate of A's largest eigenvalue that the ridge was made from; newton: of the padded A; coupled: the
     * Frobenius norm with the ridge; higher order: the bound */
    double largest;
    /* of A + ridge I without padding, an estimate; of no meaning where the error is large */
    double condition;
    /* newton, coupled, higher order: steps taken; tracked: corrections, 1 for the first order alone; 0: decomposed */
    int    iterations;
    int    tries;               /* 1: the first was good enough */
    bool   decomposed;          /* an eigendecomposition was made */
    pd_root_end ended;          /* coupled, higher order: why it took no more steps */
} pd_root_report;

/* The matrix A as an operand of a product: `wide` (float64, dense, same size) if set, otherwise the float32 `A`. */
typedef struct pd_factor {
    pd_mat        A;
    const double *wide;
} pd_factor;

enum { PD_ROOT_SMALL = 128 };           /* largest n that root_eigh.c decomposes in float64 */

#endif
