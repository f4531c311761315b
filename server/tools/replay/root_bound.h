/* root_bound.h - computes how far rounding can move an inverse root: a first-order upper bound, from the root alone.
 * The functions are pure: they use only their arguments.
 *
 * The root is X = B^-e, with e > 0. B is a symmetric and positive definite (n, n) matrix; it includes the ridge.
 * Rounding errors arise in the sums of B, and in its decomposition if that is backward stable. Their effect is that the
 * root is taken of B + E, with an error E that has |E| <= c u |B|. Here u is the unit roundoff, and c a small number.
 *
 * In the basis of B's eigenvectors, E moves the element (i, j) of X by E_ij f[b_i, b_j]. Here b_1 ... b_n are the
 * eigenvalues of B, and f[b_i, b_j] is the divided difference of f(b) = b^-e for two of them. No E_ij is above |E|. So,
 * to first order and with Frobenius norms of X,
 *     |dX| / |X| <= c u max(b) sqrt(sum over i, j of f[b_i, b_j]^2) / |X|
 * This is at most c u n e cond(B).
 *
 * The eigenvalues b follow from the eigenvalues of X. So a recorded X is enough to compute the bound. */
#ifndef PD_ROOT_BOUND_H
#define PD_ROOT_BOUND_H

#include <stdint.h>

/* Returns by which factor a relative error of a matrix B is magnified in its inverse root X = B^-e. This is the bound
 * of |dX| / |X| at the top of this file, without the factor c u. `root` is X, an (n, n) matrix with n >= 1 that is
 * symmetric up to rounding; it is overwritten. `exponent` is e.
 *
 * Returns 0 if X is zero (no root was computed yet), X is not finite, or e is 0. In these cases rounding of B explains
 * no difference. Returns INFINITY if X is not positive definite, because rounding then hides eigenvalues of B. */
double pd_root_magnification(double *root, int64_t n, double exponent);

/* Computes the eigenvalues of a finite symmetric (n, n) matrix A by Jacobi's rotations, without BLAS, so that the
 * result does not depend on the CPU. A is overwritten; its diagonal then has the eigenvalues, unsorted. */
void pd_eigenvalues(double *A, int64_t n);

#endif
