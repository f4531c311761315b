/* linalg.h - multiplies matrices: small ones by our own loops (small_product.h), others by BLAS. Pure functions; any
 * thread.
 *
 * A pd_mat is a borrowed view: row-major, with `stride` floats from one row to the next. The shapes of the arguments
 * must fit; this is asserted. Outputs must not overlap inputs. Every dimension is below 2^31. With beta = 0 the old
 * values of C are not read, so they may be NaN.
 *
 * BLAS may compute a call on several threads. It uses only the calling thread inside a parallel region of several
 * threads, and after the thread has called pd_blas_one_thread (blascore.h). */
#ifndef PD_LINALG_H
#define PD_LINALG_H

#include <stdbool.h>
#include <stddef.h>

#include "mat.h"

/* Computes C <- beta C + alpha op(A) op(B). op(A) is A, or A transposed if `a` says so, and op(B) likewise. */
void pd_gemm(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* Computes S <- beta S + alpha A A' (PD_LEFT) or S <- beta S + alpha A' A (PD_RIGHT). S is symmetric: only its lower
 * half is read and written. A' is A transposed. pd_syrk_rows computes only rows [first, end) of S. */
void pd_syrk(pd_mat S, float beta, float alpha, pd_mat A, pd_side side);
void pd_syrk_rows(pd_mat S, float beta, float alpha, pd_mat A, pd_side side, int64_t first, int64_t end);
/* Computes C <- beta C + alpha S B (PD_LEFT) or C <- beta C + alpha B S (PD_RIGHT). S is symmetric: only its lower half
 * is read. */
void pd_symm(pd_mat C, float beta, float alpha, pd_mat S, pd_mat B, pd_side side);
/* Computes B <- op(U) B (PD_LEFT) or B <- B op(U) (PD_RIGHT), at half the cost of pd_gemm. op(U) is U or its transpose.
 * U is upper triangular: elements below its diagonal are not read. */
void pd_trmm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Computes rows [first, end) of C <- op(U) B (PD_LEFT), or columns [first, end) of C <- B op(U) (PD_RIGHT). U is as in
 * pd_trmm. C and B have the same shape. */
void pd_trmm_part(pd_mat C, pd_mat B, pd_mat U, pd_turn u, pd_side side, int64_t first, int64_t end);
/* Undoes pd_trmm by substitution: computes B <- op(U)^-1 B (PD_LEFT) or B <- B op(U)^-1 (PD_RIGHT), where op(U) is U or
 * its transpose. trsm.h has a way that is faster where BLAS is slow. */
void pd_trsm_by_blas(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Writes the name of all that computes products here: the BLAS kernels, and "+own1" where small products are our own,
 * by the first edition of their rules (small_product.h). Where this name or the instruction set differs, results differ
 * in their last bits. 32 bytes are enough. */
void pd_product_kernels(char *out, size_t room);
/* Returns whether BLAS substitutes about as fast as it multiplies. OpenBLAS does so with its kernels for AVX2. Those
 * for AVX-512 take up to twice as long. */
bool pd_blas_substitutes_fast(void);
/* Computes U <- T U for upper triangular matrices of one size, at a quarter of the cost of pd_gemm. Below its diagonal
 * U must contain zeros, which stay. Elements of T below its diagonal are not read. pd_trmm_upper_columns computes only
 * columns [first, end) of U, and reads no others. */
void pd_trmm_upper(pd_mat U, pd_mat T);
void pd_trmm_upper_columns(pd_mat U, pd_mat T, int64_t first, int64_t end);
/* Computes y <- beta y + alpha op(A) x for vectors x and y. op(A) is A or its transpose. */
void pd_gemv(float *y, float beta, float alpha, pd_mat A, pd_turn a, const float *x);
/* Computes the product of a symmetric matrix and a vector: y <- S x. Only the lower half of S is read. */
void pd_symv(float *y, pd_mat S, const float *x);
/* Computes the lower half of S <- alpha op(A) op(B), a product that the caller knows to be symmetric, at little more
 * than half the cost of pd_gemm. op(A) is A or its transpose. The upper half of S is undefined afterwards. */
void pd_gemm_half(pd_mat S, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b);
/* Copies the lower half of a square matrix S over its upper half. pd_syrk, for instance, computes only the lower
 * half. */
void pd_mirror(pd_mat S);
/* Copies the lower half of a dense float64 matrix S, with n rows and n columns, over its upper half. */
void pd_mirror_f64(double *S, int64_t n);

#endif
