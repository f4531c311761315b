/* symmetric.h - symmetric matrices stored as their lower block rows: about half the memory, in blocks that BLAS can
 * multiply. The functions are pure, and allocate nothing; any thread may call them. Source: symmetric_matrices.py of
 * Google's Distributed Shampoo.
 *
 * A symmetric matrix S of k x k square blocks of side b is kept as [B00 | B10 B11 | B20 B21 B22 | ...], its lower block
 * rows side by side: one matrix of b rows and b k(k+1)/2 columns. Blocks on the diagonal are stored whole.
 *
 * The functions that return an int check the shapes of pd_mat arguments, which may come from a client. The functions
 * that take a pd_blockrows cannot fail, and assert the sizes of their other arguments. Outputs must not overlap inputs
 * unless a comment allows it. */
#ifndef PD_SYMMETRIC_H
#define PD_SYMMETRIC_H

#include "linalg.h"
#include "paramd/error.h"

/* A symmetric matrix as its lower block rows. */
typedef struct pd_blockrows {
    pd_mat at;    /* the blocks of the lower half side by side, in borrowed memory */
    int64_t b, k; /* b: rows of a block; k: number of block rows. The symmetric matrix has b k rows */
} pd_blockrows;

/* Makes a view of the matrix M as the lower block rows of a symmetric matrix. The side b of a block is M's number of
 * rows. The number k of block rows follows from the ratio of columns to rows; without columns k is 0.
 * PD_INVALID_ARGUMENT: the ratio is not k(k+1)/2 for a whole k. */
int pd_blockrows_of(pd_blockrows *out, pd_mat M, pd_error *err);

/* Computes the number k of block rows of side b in a symmetric matrix of n rows. PD_INVALID_ARGUMENT: b is below 1, or
 * n is not a multiple of b. */
int pd_blockrows_count(int64_t *k, int64_t n, int64_t b, pd_error *err);
/* Returns how many columns a matrix of b rows needs to hold the lower blocks, of side b, of k block rows side by side.
 * INT64_MAX: the number does not fit. */
int64_t pd_blockrows_cols(int64_t b, int64_t k);

/* Adds a product to the symmetric matrix B: computes B <- beta B + alpha X X', for a matrix X with as many rows as B
 * stands for, and any number of columns. X' is X transposed. With beta = 0 the old B is not read. There is one product
 * for each row of blocks. Of a block on the diagonal the lower half is computed, and mirrored. */
void pd_blockrows_product(pd_blockrows B, float beta, float alpha, pd_mat X);
/* Makes B a diagonal matrix: writes the numbers d, one for each row, to its diagonal, and zeros to all other
 * elements. */
void pd_blockrows_set_diagonal(pd_blockrows B, const float *d);

/* Writes the symmetric matrix B, of which only the lower half is stored, as a full matrix S. The blocks above the
 * diagonal are mirrored from the blocks below; blocks on the diagonal are copied. */
void pd_blockrows_materialise(pd_mat S, pd_blockrows B);
/* Writes the diagonal of the symmetric matrix B into d, one number for each row. */
void pd_blockrows_diagonal(float *d, pd_blockrows B);
/* Writes into most[r] the largest absolute value in row r of the symmetric matrix B, for all rows. A row with a NaN
 * gives NaN. */
void pd_blockrows_row_maxima(float *most, pd_blockrows B);
/* Multiplies each stored row of a symmetric matrix S, held in B, by a factor: row r of block row i by v[b i + r]. On
 * and below the diagonal the result C is diag(v) S. But C does not stand for a symmetric matrix: the elements above the
 * diagonal, which are not stored, would need the factors of other rows. C has B's shape and may be B. */
void pd_blockrows_scale(pd_blockrows C, pd_blockrows B, const float *v);

/* Copies the matrix X into P, and pads it, so that matrices of many sizes get one shape. P has room for K block rows of
 * side b: it has b rows and b K(K+1)/2 columns.
 *
 * If X is square with at most b rows, it becomes the first block, [[X, 0], [0, I]] of side b. If X has b rows, it may
 * already consist of several block rows. The remaining block rows of P become [0 ... 0 | I].
 *
 * PD_INVALID_ARGUMENT: P is not changed, and the error names both numbers:
 *   - X has more rows than b, more rows than columns, or more columns than P;
 *   - X has fewer rows than b and is not square;
 *   - X or P do not have the shape of block rows. */
int pd_blockrows_pad(pd_mat P, pd_mat X, pd_error *err);

#endif
