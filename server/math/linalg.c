/* linalg.c - wraps the BLAS routines that the optimizers need, and adds a few that BLAS lacks. */
#include "linalg.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* Converts a dimension for BLAS, which counts in int. Used also for the stride, which BLAS wants to be at least 1, even
 * for empty matrices. */
static int size(int64_t n)
{
    assert(n >= 0 && n <= INT_MAX);
    return (int)n;
}

static int stride(pd_mat M)
{
    assert(M.stride >= M.cols);
    return size(M.stride > 0 ? M.stride : 1);
}

static int64_t rows_of(pd_mat M, pd_turn turn)
{
    return turn == PD_AS_IS ? M.rows : M.cols;
}
static int64_t cols_of(pd_mat M, pd_turn turn)
{
    return turn == PD_AS_IS ? M.cols : M.rows;
}

static CBLAS_TRANSPOSE blas_turn(pd_turn turn)
{
    return turn == PD_AS_IS ? CblasNoTrans : CblasTrans;
}

static CBLAS_SIDE blas_side(pd_side side)
{
    return side == PD_LEFT ? CblasLeft : CblasRight;
}

void pd_gemm(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b)
{
    int64_t m = rows_of(A, a), k = cols_of(A, a), n = cols_of(B, b);

    assert(rows_of(B, b) == k && C.rows == m && C.cols == n);
    if (m == 0 || n == 0) return;
    cblas_sgemm(CblasRowMajor, blas_turn(a), blas_turn(b), size(m), size(n), size(k), alpha, A.at, stride(A), B.at,
                stride(B), beta, C.at, stride(C));
}

void pd_syrk(pd_mat S, float beta, float alpha, pd_mat A, pd_side side)
{
    pd_turn turn = side == PD_LEFT ? PD_AS_IS : PD_TRANSPOSED;
    int64_t n = rows_of(A, turn), k = cols_of(A, turn);

    assert(S.rows == n && S.cols == n);
    if (n == 0) return;
    cblas_ssyrk(CblasRowMajor, CblasLower, blas_turn(turn), size(n), size(k), alpha, A.at, stride(A), beta, S.at,
                stride(S));
}

void pd_symm(pd_mat C, float beta, float alpha, pd_mat S, pd_mat B, pd_side side)
{
    assert(S.rows == S.cols && S.rows == (side == PD_LEFT ? B.rows : B.cols) && C.rows == B.rows && C.cols == B.cols);
    if (C.rows == 0 || C.cols == 0) return;
    cblas_ssymm(CblasRowMajor, blas_side(side), CblasLower, size(C.rows), size(C.cols), alpha, S.at, stride(S), B.at,
                stride(B), beta, C.at, stride(C));
}

void pd_trmm(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    assert(U.rows == U.cols && U.rows == (side == PD_LEFT ? B.rows : B.cols));
    if (B.rows == 0 || B.cols == 0) return;
    cblas_strmm(CblasRowMajor, blas_side(side), CblasUpper, blas_turn(u), CblasNonUnit, size(B.rows), size(B.cols), 1,
                U.at, stride(U), B.at, stride(B));
}

void pd_trsm(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    assert(U.rows == U.cols && U.rows == (side == PD_LEFT ? B.rows : B.cols));
    if (B.rows == 0 || B.cols == 0) return;
    cblas_strsm(CblasRowMajor, blas_side(side), CblasUpper, blas_turn(u), CblasNonUnit, size(B.rows), size(B.cols), 1,
                U.at, stride(U), B.at, stride(B));
}

void pd_gemv(float *y, float beta, float alpha, pd_mat A, pd_turn a, const float *x)
{
    if (rows_of(A, a) == 0) return;
    cblas_sgemv(CblasRowMajor, blas_turn(a), size(A.rows), size(A.cols), alpha, A.at, stride(A), x, 1, beta, y, 1);
}

void pd_symv(float *y, pd_mat S, const float *x)
{
    assert(S.rows == S.cols);
    if (S.rows == 0) return;
    cblas_ssymv(CblasRowMajor, CblasLower, size(S.rows), 1, S.at, stride(S), x, 1, 0, y, 1);
}

/* Returns a view of rows [first, first + count) of op(M), which is M or its transpose. If op transposes, these are
 * columns of M. */
static pd_mat rows_from(pd_mat M, pd_turn turn, int64_t first, int64_t count)
{
    if (turn == PD_AS_IS) return (pd_mat){ M.at + first * M.stride, count, M.cols, M.stride };
    return (pd_mat){ M.at + first, M.rows, count, M.stride };
}

static pd_mat cols_from(pd_mat M, pd_turn turn, int64_t first, int64_t count)
{
    return rows_from(M, turn == PD_AS_IS ? PD_TRANSPOSED : PD_AS_IS, first, count);
}

/* Computes the lower half of the product by recursion. The lower left quarter is one product of rectangles. The upper
 * left and the lower right quarter are lower halves of squares again. */
void pd_gemm_half(pd_mat S, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b)
{
    enum { SMALL = 96 };
    int64_t n = S.rows, top = n / 2, rest = n - top;
    pd_mat below = rows_from(A, a, top, rest), left = cols_from(B, b, 0, top);

    if (n <= SMALL) {
        pd_gemm(S, 0, alpha, A, a, B, b);
        return;
    }
    pd_gemm((pd_mat){ S.at + top * S.stride, rest, top, S.stride }, 0, alpha, below, a, left, b);
    pd_gemm_half((pd_mat){ S.at, top, top, S.stride }, alpha, rows_from(A, a, 0, top), a, left, b);
    pd_gemm_half((pd_mat){ S.at + top * S.stride + top, rest, rest, S.stride }, alpha, below, a,
                 cols_from(B, b, top, rest), b);
}

static pd_mat part_of(pd_mat M, int64_t top, int64_t left, int64_t rows, int64_t cols)
{
    return (pd_mat){ M.at + top * M.stride + left, rows, cols, M.stride };
}

/* Computes the product of two upper triangles by recursion. The upper right quarter becomes T11 U12 + T12 U22, where
 * the digits number the quarters of T and U. The upper left and the lower right quarter are products of two upper
 * triangles again. */
void pd_trmm_upper(pd_mat U, pd_mat T)
{
    enum { SMALL = 48 };
    int64_t n = U.rows, top = n / 2, rest = n - top;
    pd_mat quarter = part_of(U, 0, top, top, rest);

    assert(U.cols == n && T.rows == n && T.cols == n);
    if (n <= SMALL) {
        pd_trmm(U, T, PD_AS_IS, PD_LEFT);
        return;
    }
    pd_trmm(quarter, part_of(T, 0, 0, top, top), PD_AS_IS, PD_LEFT);
    pd_gemm(quarter, 1, 1, part_of(T, 0, top, top, rest), PD_AS_IS, part_of(U, top, top, rest, rest), PD_AS_IS);
    pd_trmm_upper(part_of(U, 0, 0, top, top), part_of(T, 0, 0, top, top));
    pd_trmm_upper(part_of(U, top, top, rest, rest), part_of(T, top, top, rest, rest));
}

/* Copies the lower half of a square matrix over its upper half, in squares of 8 by 8. Writing goes along rows, so
 * reading goes down columns. Rows whose distance in memory is a power of 2 fall into the same set of the first-level
 * cache; eight such rows still fit into it. */
#define MIRROR(name, type)                                                                                             \
    static void name(type *at, int64_t n, int64_t stride)                                                              \
    {                                                                                                                  \
        enum { SIDE = 8 };                                                                                             \
                                                                                                                       \
        for (int64_t top = 0; top < n; top += SIDE) {                                                                  \
            int64_t bottom = top + SIDE < n ? top + SIDE : n;                                                          \
            for (int64_t left = 0; left <= top; left += SIDE)                                                          \
                for (int64_t j = left; j < left + SIDE && j < bottom; j++)                                             \
                    for (int64_t i = j < top ? top : j + 1; i < bottom; i++) at[j * stride + i] = at[i * stride + j];  \
        }                                                                                                              \
    }
MIRROR(mirror_f32, float)
MIRROR(mirror_f64, double)

void pd_mirror(pd_mat S)
{
    assert(S.rows == S.cols);
    mirror_f32(S.at, S.rows, S.stride);
}

void pd_mirror_f64(double *S, int64_t n)
{
    mirror_f64(S, n, n);
}
