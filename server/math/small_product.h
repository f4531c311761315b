/* small_product.h - multiplies matrices whose sides are at most PD_SMALL_SIDE. BLAS copies its operands before it
 * multiplies them, which for small matrices takes a third of the time. Pure functions; any thread.
 *
 * Element (i, j) of op(A) op(B) is one chain of fused multiplications and additions, in the order of k:
 *
 *     sum = 0;  sum = fma(A[i][k], B[k][j], sum) for k = 0, 1, ...
 *
 * So its bits depend neither on the number of threads, nor on which of AVX2 and AVX-512 is in use, the version of BLAS,
 * or the place of the element in the matrix. */
#ifndef PD_SMALL_PRODUCT_H
#define PD_SMALL_PRODUCT_H

#include <stdbool.h>

#include "mat.h"

enum { PD_SMALL_SIDE = 256 };

/* Returns whether pd_small_product computes products of this size: none of the sizes is above PD_SMALL_SIDE, and the
 * instruction set in use (cpu.h) rounds a sum and a product together. x86-64's generic set does not. */
bool pd_product_is_small(int64_t rows, int64_t cols, int64_t terms);

/* Computes C <- beta C + alpha op(A) op(B), where alpha times the sum, beta times the old element, and the sum of both
 * are rounded. With beta = 0 the old C is not read. The shapes must fit, and all three sizes of the product must be at
 * most PD_SMALL_SIDE. With `lower`, C is square, and only its lower half is read and written. */
void pd_small_product(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b, bool lower);

#endif
