/* symmetric.h - symmetric matrices stored as their lower block rows: about half the memory, in pieces that BLAS
 * multiplies whole. Pure; any thread; nothing is allocated.
 *
 * A symmetric matrix S of k x k square blocks of side b is kept as [B00 | B10 B11 | B20 B21 B22 | ...], its lower
 * block rows side by side: one matrix of b rows and b k(k+1)/2 columns. Blocks on the diagonal are stored whole.
 * Source: google_shampoo's page, section 10. Shapes come from outside as pd_mat and are checked by the functions
 * that return an int; what takes a pd_blockrows has no errors left, and asserts the sizes of its other arguments.
 * Outputs must not overlap inputs unless it says so. */
#ifndef PD_SYMMETRIC_H
#define PD_SYMMETRIC_H

#include "linalg.h"
#include "paramd/error.h"

typedef struct pd_blockrows {
    pd_mat  at;                 /* b rows, b k(k+1)/2 columns; borrowed */
    int64_t b, k;               /* side of a block, block rows: S has b k rows */
} pd_blockrows;

/* A view of M in this form: b is its number of rows, k is found from the ratio of columns and rows.
 * PD_INVALID_ARGUMENT: that is not k(k+1)/2 for a whole k (names rows and columns). Without columns k is 0. */
int pd_blockrows_of(pd_blockrows *out, pd_mat M, pd_error *err);

/* Block rows of side b that a symmetric matrix of n rows has. PD_INVALID_ARGUMENT: b is below 1, or n not a
 * multiple of it (names both). */
int pd_blockrows_count(int64_t *k, int64_t n, int64_t b, pd_error *err);
/* Columns of k block rows of side b. INT64_MAX where that does not fit. */
int64_t pd_blockrows_cols(int64_t b, int64_t k);

/* B <- beta B + alpha X X', of X (b k, any). With beta = 0 what B held is not read. One product per block row;
 * blocks on the diagonal are computed half and mirrored. */
void pd_blockrows_product(pd_blockrows B, float beta, float alpha, pd_mat X);
/* The matrix with d (b k entries) on its diagonal and zeros elsewhere. */
void pd_blockrows_set_diagonal(pd_blockrows B, const float *d);

/* S (b k, b k) in full: what lies above the blocks on the diagonal is mirrored from below; those blocks are copied
 * as they are. */
void pd_blockrows_materialise(pd_mat S, pd_blockrows B);
/* d (b k entries): the diagonal of S. */
void pd_blockrows_diagonal(float *d, pd_blockrows B);
/* most (b k entries): max |S[r, :]| of each row of S. NaN where the row has one. */
void pd_blockrows_row_maxima(float *most, pd_blockrows B);
/* C <- stored rows times v (b k entries): row r of block row i is multiplied by v[b i + r]. That is diag(v) S on
 * and below the diagonal only: the part that is not stored would have its rows' factors, so C stands for no
 * symmetric matrix. C has B's shape and may be B. */
void pd_blockrows_scale(pd_blockrows C, pd_blockrows B, const float *v);

/* Pads X to K block rows of side b, into P (b rows, b K(K+1)/2 columns), so that matrices of many sizes have one
 * shape. A square X of at most b rows is padded to [[X, 0], [0, I]] of side b; an X of b rows may already be
 * several block rows. Then block rows [0 ... 0 | I] follow. PD_INVALID_ARGUMENT, each naming both values: more
 * rows than b; more rows than columns; more columns than P has; fewer rows than b and not square; X or P are not
 * block rows. P is then untouched. */
int pd_blockrows_pad(pd_mat P, pd_mat X, pd_error *err);

#endif
