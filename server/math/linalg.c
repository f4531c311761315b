/* linalg.c - wraps the BLAS routines that the optimizers need, and adds a few that BLAS lacks. Products of small
 * matrices are our own (small_product.c). */
#include "linalg.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "blascore.h"
#include "small_product.h"

/* Converts a dimension or a stride to int, the type that BLAS takes. */
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

/* Returns rows [first, end) of op(M). If op transposes, these are columns of M. */
static pd_mat rows_from(pd_mat M, pd_turn turn, int64_t first, int64_t end)
{
    return turn == PD_AS_IS ? pd_mat_rows(M, first, end) : pd_mat_cols(M, first, end);
}

static pd_mat cols_from(pd_mat M, pd_turn turn, int64_t first, int64_t end)
{
    return turn == PD_AS_IS ? pd_mat_cols(M, first, end) : pd_mat_rows(M, first, end);
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
    if (pd_product_is_small(m, n, k)) {
        pd_small_product(C, beta, alpha, A, a, B, b, false);
        return;
    }
    cblas_sgemm(CblasRowMajor, blas_turn(a), blas_turn(b), size(m), size(n), size(k), alpha, A.at, stride(A), B.at,
                stride(B), beta, C.at, stride(C));
}

void pd_syrk(pd_mat S, float beta, float alpha, pd_mat A, pd_side side)
{
    pd_turn turn = side == PD_LEFT ? PD_AS_IS : PD_TRANSPOSED;
    int64_t n = rows_of(A, turn), k = cols_of(A, turn);

    assert(S.rows == n && S.cols == n);
    if (n == 0) return;
    if (pd_product_is_small(n, n, k)) {
        pd_small_product(S, beta, alpha, A, turn, A, turn == PD_AS_IS ? PD_TRANSPOSED : PD_AS_IS, true);
        return;
    }
    cblas_ssyrk(CblasRowMajor, CblasLower, blas_turn(turn), size(n), size(k), alpha, A.at, stride(A), beta, S.at,
                stride(S));
}

/* Rows [first, end) of S consist of a square on the diagonal, of which only the lower half is computed, and of a
 * rectangle left of it. */
void pd_syrk_rows(pd_mat S, float beta, float alpha, pd_mat A, pd_side side, int64_t first, int64_t end)
{
    pd_turn turn = side == PD_LEFT ? PD_AS_IS : PD_TRANSPOSED, other = side == PD_LEFT ? PD_TRANSPOSED : PD_AS_IS;
    pd_mat own = rows_from(A, turn, first, end);

    if (first > 0)
        pd_gemm(pd_mat_part(S, first, 0, end - first, first), beta, alpha, own, turn, rows_from(A, turn, 0, first),
                other);
    pd_syrk(pd_mat_part(S, first, first, end - first, end - first), beta, alpha, own, side);
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

static void copy(pd_mat to, pd_mat from)
{
    for (int64_t i = 0; i < to.rows; i++)
        memcpy(to.at + i * to.stride, from.at + i * from.stride, (size_t)to.cols * sizeof *to.at);
}

/* The result depends on a square on the diagonal of op(U), and on a rectangle on one side of the square; on its other
 * side op(U) is zero. [from, to) are the rows of B (PD_LEFT) or columns of B (PD_RIGHT) by which the rectangle is
 * multiplied. */
void pd_trmm_part(pd_mat C, pd_mat B, pd_mat U, pd_turn u, pd_side side, int64_t first, int64_t end)
{
    bool left = side == PD_LEFT, behind = left == (u == PD_AS_IS);
    int64_t from = behind ? end : 0, to = behind ? U.rows : first, n = end - first;
    pd_mat own = left ? pd_mat_rows(C, first, end) : pd_mat_cols(C, first, end),
           rectangle = behind ? pd_mat_part(U, first, end, n, to - from) : pd_mat_part(U, 0, first, to - from, n);

    copy(own, left ? pd_mat_rows(B, first, end) : pd_mat_cols(B, first, end));
    pd_trmm(own, pd_mat_part(U, first, first, n, n), u, side);
    if (from == to) return;
    if (left)
        pd_gemm(own, 1, 1, rectangle, u, pd_mat_rows(B, from, to), PD_AS_IS);
    else
        pd_gemm(own, 1, 1, pd_mat_cols(B, from, to), PD_AS_IS, rectangle, u);
}

void pd_trsm_by_blas(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    assert(U.rows == U.cols && U.rows == (side == PD_LEFT ? B.rows : B.cols));
    if (B.rows == 0 || B.cols == 0) return;
    cblas_strsm(CblasRowMajor, blas_side(side), CblasUpper, blas_turn(u), CblasNonUnit, size(B.rows), size(B.cols), 1,
                U.at, stride(U), B.at, stride(B));
}

void pd_product_kernels(char *out, size_t room)
{
    snprintf(out, room, "%.24s%s", pd_blas_core(), pd_product_is_small(1, 1, 1) ? "+own1" : "");
}

bool pd_blas_substitutes_fast(void)
{
    const char *core = pd_blas_core();

    return strcasecmp(core, "Haswell") == 0 || strcasecmp(core, "Zen") == 0;
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

/* Computes the lower half of the product by recursion. The lower left quarter is one product of rectangles. The upper
 * left and the lower right quarter are lower halves of squares again. */
void pd_gemm_half(pd_mat S, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b)
{
    enum { SMALL = 96 };
    int64_t n = S.rows, top = n / 2, rest = n - top;
    pd_mat below = rows_from(A, a, top, n), left = cols_from(B, b, 0, top);

    if (n <= SMALL) {
        pd_gemm(S, 0, alpha, A, a, B, b);
        return;
    }
    pd_gemm(pd_mat_part(S, top, 0, rest, top), 0, alpha, below, a, left, b);
    pd_gemm_half(pd_mat_part(S, 0, 0, top, top), alpha, rows_from(A, a, 0, top), a, left, b);
    pd_gemm_half(pd_mat_part(S, top, top, rest, rest), alpha, below, a, cols_from(B, b, top, n), b);
}

/* Computes columns [first, end) of the product of two upper triangles. These columns of U are a rectangle U12 above a
 * square U22 on the diagonal. The rectangle becomes T11 U12 + T12 U22. The square becomes T22 U22, a product of two
 * upper triangles again. */
void pd_trmm_upper_columns(pd_mat U, pd_mat T, int64_t first, int64_t end)
{
    int64_t n = end - first;
    pd_mat above = pd_mat_part(U, 0, first, first, n), square = pd_mat_part(U, first, first, n, n);

    if (first > 0) {
        pd_trmm(above, pd_mat_part(T, 0, 0, first, first), PD_AS_IS, PD_LEFT);
        pd_gemm(above, 1, 1, pd_mat_part(T, 0, first, first, n), PD_AS_IS, square, PD_AS_IS);
    }
    pd_trmm_upper(square, pd_mat_part(T, first, first, n, n));
}

void pd_trmm_upper(pd_mat U, pd_mat T)
{
    enum { SMALL = 48 };
    int64_t n = U.rows;

    assert(U.cols == n && T.rows == n && T.cols == n);
    if (n <= SMALL) {
        pd_trmm(U, T, PD_AS_IS, PD_LEFT);
        return;
    }
    pd_trmm_upper_columns(U, T, n / 2, n);
    pd_trmm_upper_columns(U, T, 0, n / 2);
}

/* Copies the lower half of a square matrix over its upper half, in squares of 8 by 8. It writes along rows, and so
 * reads down columns. Rows whose distance in memory is a power of 2 use the same set of the first-level cache; eight
 * such rows still fit into the set. */
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
