/* polar.h - orthogonalizes a matrix: brings all its singular values near 1, by iterations that only multiply matrices
 * (Newton-Schulz, Polar Express). Pure functions; any thread; no allocations of their own.
 *
 * Each iteration is X <- a X + (b A + c A A) X, where A = X X', X' is X transposed, and X has at most as many rows as
 * columns. (With more rows than columns the products stand on the other side.) Singular values go through the
 * polynomial a s + b s^3 + c s^5.
 *
 * Products of large matrices are cut into stripes, which the threads of a parallel region share (stripes.h). */
#ifndef PD_POLAR_H
#define PD_POLAR_H

#include <stdbool.h>

#include "linalg.h"

/* The program whose order of operations is followed: torch.optim.Muon or Keller Jordan's Muon. They differ in how they
 * guard against a norm of 0, and where they round to bfloat16. */
typedef enum pd_polar_form { PD_POLAR_TORCH, PD_POLAR_KELLER } pd_polar_form;

/* How a matrix is orthogonalized. */
typedef struct pd_polar {
    pd_polar_form form;
    bool bfloat16; /* numbers are rounded to bfloat16 where the program does it; sums of products are float32 */
    bool express;  /* Polar Express: a, b and c are another optimal triple in each iteration; `factors` is not used */
    float factors[3]; /* a, b and c */
    float eps;        /* least norm (PD_POLAR_TORCH), or number added to the norm; not used by Polar Express */
    int steps;        /* number of iterations */
} pd_polar;

/* Orthogonalizes the dense matrix X in place: divides it by its norm, then iterates. A matrix of zeros stays, and one
 * with a NaN or an infinity becomes NaN. `scratch` has room for pd_polar_scratch floats. */
void pd_polar_factor(pd_mat X, const pd_polar *how, float *scratch);
/* Returns the floats of scratch memory that a matrix of this size needs. */
int64_t pd_polar_scratch(int64_t rows, int64_t cols);
/* Returns the number of multiplications and additions for a matrix of this size. Symmetric products count half. */
double pd_polar_flops(int64_t rows, int64_t cols, int steps);
/* Returns whether the products for a matrix of this size are so large that threads share them. */
bool pd_polar_is_large(int64_t rows, int64_t cols);

#endif
