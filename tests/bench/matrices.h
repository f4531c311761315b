/* matrices.h - statistics (symmetric matrices) whose roots are measured, and reference roots by ssyevd. */
#ifndef PD_MATRICES_H
#define PD_MATRICES_H

#include "linalg.h"

/* Returns a matrix of zeros (n, n). The caller frees .at. */
pd_mat matrices_new(int64_t n);
void matrices_copy(pd_mat to, pd_mat from);

/* Fills A with a symmetric matrix that has a random eigenbasis. Its eigenvalues go from 1 down to 1 / condition,
 * evenly on a logarithmic scale. */
void matrices_with_condition(pd_mat A, double condition, uint64_t seed);
/* Computes A <- beta A + (1 - beta) G G' / columns. G (n, columns) is overwritten: it is filled with normal numbers,
 * and row i is scaled by (i + 1)^-power. */
void matrices_step(pd_mat A, pd_mat G, float beta, double power, uint64_t *seed);

/* The root to compute: (A + epsilon * largest eigenvalue * I)^(-1/p). */
typedef struct matrices_root {
    int p;
    double epsilon;
} matrices_root;

/* Computes the root X of A by ssyevd and one product. Memory is prepared before the clock starts. Returns the
 * milliseconds of both; writes those of ssyevd alone to *alone. */
double matrices_plain(pd_mat X, pd_mat A, const matrices_root *root, double *alone);
/* matrices_reference computes the root R (n * n) in float64. matrices_error returns the relative error |X - R| /
 * |R|. */
void matrices_reference(double *R, pd_mat A, const matrices_root *root);
double matrices_error(pd_mat X, const double *R);

#endif
