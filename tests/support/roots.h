/* roots.h - matrices with known eigenvalues, and a slow float64 oracle of their inverse roots (cyclic Jacobi), for the tests of root.h. */
#ifndef ROOTS_H
#define ROOTS_H

#include "linalg.h"

/* Zeros (n, n), dense; the caller frees .at, also of the two below. */
pd_mat roots_matrix(int64_t n);
pd_mat roots_copy(pd_mat A);
/* Those eigenvalues in a pseudo-random basis, exactly symmetric. */
pd_mat roots_with(const double *values, int64_t n, uint32_t seed);

/* Pseudo-random, uniform on [-1, 1). */
double roots_number(uint32_t *seed);

/* |X - (A + epsilon max(largest, 1e-6) I)^(-1/p)| over the norm of the latter. */
double roots_error(pd_mat X, pd_mat A, int p, double epsilon);
/* The same of (A - min(least eigenvalue, 0) I + epsilon I)^-exponent. */
double roots_shifted_error(pd_mat X, pd_mat A, double exponent, double epsilon);
/* |X^p A - I| / sqrt(n) */
double roots_residual(pd_mat X, pd_mat A, int p);
/* What the measure of the methods says of X. */
double roots_checked(pd_mat X, pd_mat A, double ridge, int p);

#endif
