/* roots.h - matrices with known eigenvalues, and a slow float64 oracle of their inverse roots (cyclic Jacobi), for the
 * tests of root.h. */
#ifndef ROOTS_H
#define ROOTS_H

#include "linalg.h"

/* Returns an (n, n) matrix of zeros. The caller frees .at. */
pd_mat roots_matrix(int64_t n);
pd_mat roots_copy(pd_mat A);
/* Returns a symmetric matrix with the given eigenvalues, in a pseudorandom basis. The caller frees .at. */
pd_mat roots_with(const double *values, int64_t n, uint32_t seed);

/* Returns a pseudo-random number, uniform on [-1, 1). */
double roots_number(uint32_t *seed);

/* Returns the error of the root X relative to the exact root E, |X - E| / |E|, with E = (A + epsilon max(largest
 * eigenvalue, 1e-6) I)^(-1/p). */
double roots_error(pd_mat X, pd_mat A, int p, double epsilon);
/* Returns the error of the root X relative to the exact root E = (A - min(least eigenvalue, 0) I + epsilon
 * I)^-exponent. */
double roots_shifted_error(pd_mat X, pd_mat A, double exponent, double epsilon);
/* Returns the residual of X as an inverse p-th root of A: |X^p A - I| / sqrt(n). */
double roots_residual(pd_mat X, pd_mat A, int p);
/* Returns the error of a root X that pd_basis_check computes. The root methods check their results with it. */
double roots_checked(pd_mat X, pd_mat A, double ridge, int p);

#endif
