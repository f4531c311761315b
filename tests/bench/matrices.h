/* matrices.h - statistics whose roots are computed for a figure, and the root as anyone would compute it by ssyevd. */
#ifndef PD_MATRICES_H
#define PD_MATRICES_H

#include "linalg.h"

/* Zeros (n, n). Gives: free .at. */
pd_mat matrices_new(int64_t n);
void   matrices_copy(pd_mat to, pd_mat from);

/* A <- eigenvalues from 1 down to 1 / condition, evenly on a logarithmic scale, in a random basis. */
void matrices_with_condition(pd_mat A, double condition, uint64_t seed);
/* A <- beta A + (1 - beta) G G' / columns, G (n, columns) normal with row i scaled by (i + 1)^-power. G is room of that size. */
void matrices_step(pd_mat A, pd_mat G, float beta, double power, uint64_t *seed);

/* What is asked of a root: (A + epsilon * largest eigenvalue)^(-1/p). */
typedef struct matrices_root {
    int    p;
    double epsilon;
} matrices_root;

/* X <- the root by ssyevd and one product, on memory prepared before. Returns the milliseconds; *alone: those of ssyevd. */
double matrices_plain(pd_mat X, pd_mat A, const matrices_root *root, double *alone);
/* R (n * n) <- the root in float64; and |X - R| / |R|. */
void   matrices_reference(double *R, pd_mat A, const matrices_root *root);
double matrices_error(pd_mat X, const double *R);

#endif
