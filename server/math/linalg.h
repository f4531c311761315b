/* linalg.h - products of matrices by BLAS. Pure; any thread.
 *
 * A pd_mat is a borrowed view: row-major, with `stride` floats from one row to the next. The shapes of the arguments
 * must fit; this is asserted. Outputs must not overlap inputs. Every dimension is below 2^31. With beta = 0 the old
 * values of C are not read, so they may be NaN.
 *
 * BLAS may compute a call on several threads. It uses the calling thread alone inside a parallel region of several
 * threads, and after that thread has called pd_blas_one_thread (blascore.h). */
#ifndef PD_LINALG_H
#define PD_LINALG_H

#include <stdint.h>

typedef struct pd_mat {
    float *at;
    int64_t rows, cols, stride; /* stride >= cols */
} pd_mat;

/* Whether a factor enters a product transposed. */
typedef enum pd_turn { PD_AS_IS, PD_TRANSPOSED } pd_turn;
/* The side from which a matrix is multiplied. In pd_syrk it chooses the product: A A' (PD_LEFT, as many rows as A)
 * or A' A (PD_RIGHT, as many rows as A has columns). */
typedef enum pd_side { PD_LEFT, PD_RIGHT } pd_side;

/* Returns a view of a dense matrix. */
static inline pd_mat pd_mat_dense(float *at, int64_t rows, int64_t cols)
{
    return (pd_mat){ at, rows, cols, cols };
}

/* Returns a view of a part of M: `rows` rows from row `top` on, `cols` columns from column `left` on. */
static inline pd_mat pd_mat_part(pd_mat M, int64_t top, int64_t left, int64_t rows, int64_t cols)
{
    return (pd_mat){ M.at + top * M.stride + left, rows, cols, M.stride };
}

/* Return a view of rows or columns [first, end) of M. */
static inline pd_mat pd_mat_rows(pd_mat M, int64_t first, int64_t end)
{
    return pd_mat_part(M, first, 0, end - first, M.cols);
}
static inline pd_mat pd_mat_cols(pd_mat M, int64_t first, int64_t end)
{
    return pd_mat_part(M, 0, first, M.rows, end - first);
}

/* Computes C <- beta C + alpha op(A) op(B). */
void pd_gemm(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* Computes S <- beta S + alpha A A' (PD_LEFT) or alpha A' A (PD_RIGHT). S is symmetric: only its lower half is read and
 * written. pd_syrk_rows computes only rows [first, end) of S. */
void pd_syrk(pd_mat S, float beta, float alpha, pd_mat A, pd_side side);
void pd_syrk_rows(pd_mat S, float beta, float alpha, pd_mat A, pd_side side, int64_t first, int64_t end);
/* Computes C <- beta C + alpha S B (PD_LEFT) or alpha B S (PD_RIGHT). S is symmetric: only its lower half is read. */
void pd_symm(pd_mat C, float beta, float alpha, pd_mat S, pd_mat B, pd_side side);
/* Computes B <- op(U) B (PD_LEFT) or B op(U) (PD_RIGHT), at half the cost of pd_gemm. U is upper triangular: elements
 * below its diagonal are not read. */
void pd_trmm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Computes rows [first, end) of C <- op(U) B (PD_LEFT), or columns [first, end) of C <- B op(U) (PD_RIGHT), with U as in
 * pd_trmm. C and B have the same shape. */
void pd_trmm_part(pd_mat C, pd_mat B, pd_mat U, pd_turn u, pd_side side, int64_t first, int64_t end);
/* Undoes pd_trmm by substitution: B <- op(U)^-1 B (PD_LEFT) or B op(U)^-1 (PD_RIGHT). */
void pd_trsm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Computes U <- T U for upper triangular matrices of one size, at a quarter of the cost of pd_gemm. Below its diagonal
 * U holds zeros, and keeps them. Elements of T below its diagonal are not read. pd_trmm_upper_columns computes only
 * columns [first, end) of U, and reads no others. */
void pd_trmm_upper(pd_mat U, pd_mat T);
void pd_trmm_upper_columns(pd_mat U, pd_mat T, int64_t first, int64_t end);
/* Computes y <- beta y + alpha op(A) x. */
void pd_gemv(float *y, float beta, float alpha, pd_mat A, pd_turn a, const float *x);
/* Computes y <- S x. S is symmetric: only its lower half is read. */
void pd_symv(float *y, pd_mat S, const float *x);
/* Computes the lower half of S <- alpha op(A) op(B), a product that is known to be symmetric, at little more than half
 * the cost of pd_gemm. The upper half of S is undefined afterwards. */
void pd_gemm_half(pd_mat S, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* Copies the lower half of S (n, n), as pd_syrk computes it, over its upper half. */
void pd_mirror(pd_mat S);
/* Copies the lower half of a dense float64 matrix S (n, n) over its upper half. */
void pd_mirror_f64(double *S, int64_t n);

#endif
