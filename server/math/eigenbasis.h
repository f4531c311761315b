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

/* Returns an estimate of the floating-point operations of pd_eigenbasis_refresh. */
double pd_eigenbasis_flops(int64_t n);
/* Returns the largest number of bytes that a function of this file allocates. */
int64_t pd_eigenbasis_scratch(int64_t n);

#endif
