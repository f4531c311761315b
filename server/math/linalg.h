/* linalg.h - products of matrices, by BLAS. Pure; any thread. A call computes on the calling thread alone inside a
 * parallel region of several threads, and where that thread has called pd_blas_one_thread (blascore.h).
 *
 * A pd_mat is a borrowed view: row-major, `stride` floats from one row to the next. Shapes are the caller's
 * business and asserted. With beta = 0 what C held is not read, so it may be NaN. Outputs must not overlap inputs.
 * Every dimension is below 2^31. */
#ifndef PD_LINALG_H
#define PD_LINALG_H

#include <stdint.h>

typedef struct pd_mat {
    float  *at;
    int64_t rows, cols, stride;         /* stride >= cols */
} pd_mat;

/* How a factor enters a product. */
typedef enum pd_turn { PD_AS_IS, PD_TRANSPOSED } pd_turn;
/* Of which side of it a matrix is multiplied, or which of its dimensions a symmetric product keeps. */
typedef enum pd_side { PD_LEFT, PD_RIGHT } pd_side;

/* A dense matrix without gaps. */
static inline pd_mat pd_mat_dense(float *at, int64_t rows, int64_t cols)
{
    return (pd_mat){ at, rows, cols, cols };
}

/* C <- beta C + alpha op(A) op(B) */
void pd_gemm(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* S <- beta S + alpha A A' (PD_LEFT) or alpha A' A (PD_RIGHT). Symmetric: only its lower half is read and written. */
void pd_syrk(pd_mat S, float beta, float alpha, pd_mat A, pd_side side);
/* C <- beta C + alpha S B (PD_LEFT) or alpha B S (PD_RIGHT). S is symmetric: only its lower half is read. */
void pd_symm(pd_mat C, float beta, float alpha, pd_mat S, pd_mat B, pd_side side);
/* B <- op(U) B (PD_LEFT) or B op(U) (PD_RIGHT). U is upper triangular: nothing below its diagonal is read. Half
 * the cost of pd_gemm. */
void pd_trmm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Undoes that: B <- op(U)^-1 B or B op(U)^-1, by substitution. */
void pd_trsm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* U <- T U, both upper triangular and of one size. Below its diagonal U holds zeros, and keeps them; there nothing
 * of T is read. A quarter of the cost of pd_gemm. */
void pd_trmm_upper(pd_mat U, pd_mat T);
/* y <- beta y + alpha op(A) x */
void pd_gemv(float *y, float beta, float alpha, pd_mat A, pd_turn a, const float *x);
/* y <- S x. S is symmetric: only its lower half is read. */
void pd_symv(float *y, pd_mat S, const float *x);
/* S <- alpha op(A) op(B) where that product is known to be symmetric, at little more than half its cost: S's lower
 * half. Of its upper half anything may be left. */
void pd_gemm_half(pd_mat S, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* Writes the lower half of S (n, n), which pd_syrk computes, over its upper half. */
void pd_mirror(pd_mat S);
/* The same of a dense matrix in float64. */
void pd_mirror_f64(double *S, int64_t n);

#endif
