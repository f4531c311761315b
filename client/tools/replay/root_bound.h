/* root_bound.h - how far rounding can move an inverse root: an upper bound of first order, from the root alone. Pure.
 *
 * X = B^-e, where B is symmetric, positive definite and contains the ridge. A backward stable decomposition in
 * arithmetic of unit u, and the rounding of B's own sums, give the root of B + E with |E| <= c u |B|, c a few units. In
 * B's basis of eigenvectors E moves entry (i, j) of X by E_ij f[b_i, b_j], the divided difference of f(b) = b^-e, and
 * no E_ij is above |E|. So, to first order,
 *     |dX| / |X| <= c u max(b) sqrt(sum over i, j of f[b_i, b_j]^2) / |X|        (Frobenius norms of X)
 * which is at most c u n e cond(B). The eigenvalues b follow from X's own, so the bound is known where X is
 * recorded. */
#ifndef PD_ROOT_BOUND_H
#define PD_ROOT_BOUND_H

#include <stdint.h>

/* Returns the right side without c u: the factor by which a relative error of B is magnified. `root` is X (n, n),
 * symmetric up to rounding, n >= 1; it is overwritten. 0: X is zero, so no root was computed yet, or not finite, or e
 * is 0: then rounding of B explains no difference. INFINITY: X is not positive definite, so rounding hides eigenvalues
 * of B. */
double pd_root_magnification(double *root, int64_t n, double exponent);

/* Finds the eigenvalues of a finite symmetric A (n, n) by Jacobi's rotations, without BLAS, so that they do not depend
 * on the CPU. A is overwritten; its diagonal holds the eigenvalues, unsorted. */
void pd_eigenvalues(double *A, int64_t n);

#endif
