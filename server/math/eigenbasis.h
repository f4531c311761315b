/* eigenbasis.h - orthonormal bases whose vectors are close to the eigenvectors of a symmetric matrix, for optimizers
 * that work in such bases. Pure functions, which allocate their work memory; any thread. */
#ifndef PD_EIGENBASIS_H
#define PD_EIGENBASIS_H

#include <stdint.h>

#include "linalg.h"

/* Computes the eigenvectors of L as the columns of Q, by descending eigenvalue. L (n, n; n >= 1) is symmetric and
 * finite, with both halves, dense, and is overwritten. *condition gets the estimated condition number of L; 0: L is
 * singular up to rounding. PD_NO_MEMORY. PD_OUT_OF_RANGE: LAPACK failed. */
int pd_eigenbasis(pd_mat Q, pd_mat L, double *condition);

/* Moves the basis `old` towards the eigenvectors of L by one step of orthogonal iteration: Q is the orthogonal factor
 * of the Householder QR decomposition of L times `old`. L is as above, but is not changed. All matrices are dense and
 * do not overlap.
 *
 * If `order` is not NULL, the columns of `old` are first sorted by descending estimate of their eigenvalue, the
 * diagonal of old' L old. Equal estimates keep their order. order[j] gets the former index of column j.
 * PD_NO_MEMORY. */
int pd_eigenbasis_refresh(pd_mat Q, float *order, pd_mat old, pd_mat L, double *condition);

/* Moves the basis Q towards the eigenvectors of A by QR iterations, as Meta's matrix_functions.py does: at most
 * `iterations` times, and while the part of B = Q' A Q off its diagonal has a larger norm than `tolerance` times that
 * of B, Q is multiplied by the orthogonal factor of B. Then the columns are sorted by ascending eigenvalue estimate,
 * the diagonal of B; equal ones keep their order. values[j] gets the estimate of column j, and *rest the norm of what
 * is left off the diagonal over that of B. A is symmetric and finite, with both halves, and is not changed. All
 * matrices are dense. PD_NO_MEMORY.
 *
 * The iteration brings the largest eigenvalues to the front, and the order of the columns is the opposite. So a basis
 * that begins with the columns of the last call does not come closer with each call of one iteration. */
int pd_eigenbasis_iterate(pd_mat Q, float *values, pd_mat A, double tolerance, int iterations, double *rest);

/* Returns an estimate of the floating-point operations of pd_eigenbasis_refresh. */
double pd_eigenbasis_flops(int64_t n);
/* Returns the largest number of bytes that a function of this file allocates. */
int64_t pd_eigenbasis_scratch(int64_t n);

#endif
