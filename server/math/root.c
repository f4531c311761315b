/* root.c - computes a root of a matrix by the requested method, and retries if the method fails. */
#include "root.h"

#include <assert.h>
#include <math.h>

#include "root_types.h"

static int by_method(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    switch (want->method) {
    case PD_ROOT_NEWTON: return pd_root_newton(X, A, want, report);
    case PD_ROOT_EIGH: return pd_root_eigh(X, A, want, report);
    case PD_ROOT_EIGH64: return pd_root_eigh64(X, A, want, report);
    case PD_ROOT_TRACKED: return pd_root_tracked(X, Q, A, want, report);
    case PD_ROOT_QR: return pd_root_qr(X, Q, A, want, report);
    case PD_ROOT_COUPLED: return pd_root_coupled(X, A, want, report);
    case PD_ROOT_HIGHER_ORDER: return pd_root_higher_order(X, A, want, report);
    }
    assert(!"a method of the list");
    return PD_INTERNAL;
}

/* Returns whether the result of the last try is not good enough, and a retry may be better. */
static bool is_refused(int rc, const pd_root_want *want, const pd_root_report *report)
{
    return rc == PD_OUT_OF_RANGE || (rc == PD_OK && !(report->error < want->most_error));
}

/* Returns the request for the first retry: an eigendecomposition in float64 with the same ridge as the failed try. */
static pd_root_want by_decomposition(const pd_root_want *want, const pd_root_report *report)
{
    pd_root_want now = *want;

    now.method = PD_ROOT_EIGH64;
    now.exponent = pd_root_exponent(want);
    if (want->method == PD_ROOT_HIGHER_ORDER) now.epsilon = pd_root_bounded_ridge(want->epsilon, report->largest);
    return now;
}

int pd_root(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_root_want now;
    int rc;

    *report = (pd_root_report){ .error = NAN, .largest = NAN, .condition = NAN, .tries = 1 };
    if (!pd_root_is_finite(A)) return PD_OUT_OF_RANGE; /* LAPACK may hang on NaN and infinities */
    if (want->ridge == PD_RIDGE_SHIFTED && !want->pseudo && want->method != PD_ROOT_QR &&
        pd_root_is_diagonal((pd_factor){ .A = A }))
        return pd_root_of_diagonal(X, (pd_factor){ .A = A }, want, report);
    rc = by_method(X, Q, A, want, report);
    report->tries = 1;
    now = by_decomposition(want, report);
    for (int again = 1; again <= want->retries && is_refused(rc, want, report); again++) {
        rc = by_method(X, Q, A, &now, report);
        report->tries = 1 + again;
        now.epsilon *= 10;
    }
    return rc;
}

/* Estimates the cost from the number of products of n by n matrices in float32:
 *
 *   - Newton: 20 steps with the products for T^p, M and H. Each costs somewhat more than half a full product, times two
 *     because it is in float64.
 *   - Eigendecomposition: 8 products, and one to assemble the root. In float64: 12 and two.
 *   - Tracked eigenbasis: 5.
 *   - QR iterations (one is assumed): 9.
 *   - Coupled Newton in float32: 15 steps with full products.
 *   - Higher order (order 3 is assumed): 12 steps with two more products each. */
double pd_root_flops(pd_root_method method, int64_t n, int p)
{
    double product = 2.0 * (double)n * (double)n * (double)n,
           powers = floor(log2(p)) + __builtin_popcount((unsigned)p) + 1;

    switch (method) {
    case PD_ROOT_NEWTON: return 20 * 2 * 0.6 * powers * product;
    case PD_ROOT_EIGH: return (8 + 1) * product;
    case PD_ROOT_EIGH64: return (12 + 2) * product;
    case PD_ROOT_TRACKED: break;
    case PD_ROOT_QR: return 9 * product;
    case PD_ROOT_COUPLED: return 15 * powers * product;
    case PD_ROOT_HIGHER_ORDER: return 12 * (powers + 2) * product;
    }
    return 5 * product;
}

/* Returns how many n by n matrices a method has in memory at once, counted in float32 (a float64 matrix counts twice):
 *
 *   - Newton: the float64 matrices M, H and T, and two or three more for the power T^p of an inverse p-th root.
 *   - Eigendecomposition: two for LAPACK. In float64 (also for small matrices): two for LAPACK and the matrix itself.
 *   - Tracked eigenbasis: the same, since it falls back to an eigendecomposition.
 *   - QR iterations: four.
 *   - Coupled iterations: seven. */
static int64_t matrices_of(pd_root_method method, int64_t n, int p)
{
    switch (method) {
    case PD_ROOT_NEWTON: return 2 * (3 + (__builtin_popcount((unsigned)p) == 1 ? 2 : 3));
    case PD_ROOT_EIGH:
    case PD_ROOT_TRACKED: return n <= PD_ROOT_SMALL ? 6 : 2;
    case PD_ROOT_EIGH64: return 6;
    case PD_ROOT_QR: return 4;
    case PD_ROOT_COUPLED:
    case PD_ROOT_HIGHER_ORDER: break;
    }
    return 7;
}

/* Adds up the matrices of the method (or of its retry, if that has more) and 64 vectors of n numbers. */
int64_t pd_root_scratch(pd_root_method method, bool retried, int64_t n, int p)
{
    int64_t most = matrices_of(method, n, p), again = retried ? matrices_of(PD_ROOT_EIGH64, n, p) : 0;

    return ((most > again ? most : again) * n + 64) * n * (int64_t)sizeof(float);
}
