/* trsm.c - solves systems of equations whose matrix is triangular, by blocks. Substitution for one unknown after the
 * other has little that a CPU can compute at the same time. So the triangle is halved until its sides are at most
 * BLOCK, and small triangles on the diagonal are inverted: then all work is products of matrices.
 *
 * Accuracy: the inverse of a small triangle T is computed in float64 and rounded once. The error of a solution X is at
 * most about BLOCK roundings of |T^-1| |T| |X|, element by element, which is also the bound of substitution. */
#include "trsm.h"

#include <assert.h>
#include <string.h>

#include "cpu.h"
#include "lanes.h"
#include "linalg.h"

/* CHUNK: number of columns (or rows) of B that are multiplied at a time by the inverse of a small triangle. */
enum { BLOCK = 32, CHUNK = 128 };

/* Computes the inverse of an upper triangle with n <= BLOCK rows, from its last row on: row i of the inverse is the
 * unit vector i, less the rows below it times the elements of row i, times one over the diagonal element. Eight columns
 * are computed at a time, so that their sums stay in registers. Elements below the diagonal become 0. */
PD_CLONES(void, invert, (float to[BLOCK][BLOCK], const float *U, int64_t stride, int64_t n), (to, U, stride, n))
{
    double inverse[BLOCK][BLOCK] = { { 0 } };

    for (int64_t i = n - 1; i >= 0; i--) {
        double scale = 1 / (double)U[i * stride + i];
        inverse[i][i] = 1;
        for (int64_t first = i / 8 * 8; first < n; first += 8) {
            int64_t end = first + 8 < n ? first + 8 : n; /* rows from `end` on have zeros in these columns */
            pd_doubles *at = (pd_doubles *)(inverse[i] + first), low = at[0], high = at[1];
            for (int64_t k = i + 1; k < end; k++) {
                double by = (double)U[i * stride + k];
                low -= by * PD_DOUBLES(inverse[k] + first);
                high -= by * PD_DOUBLES(inverse[k] + first + 4);
            }
            at[0] = low * scale, at[1] = high * scale;
        }
    }
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++) to[i][j] = j < i ? 0 : (float)inverse[i][j];
}

static void solve_small(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    float inverse[BLOCK][BLOCK], copy[BLOCK * CHUNK];
    pd_mat V = { inverse[0], U.rows, U.rows, BLOCK };
    int64_t n = side == PD_LEFT ? B.cols : B.rows;

    invert(inverse, U.at, U.stride, U.rows);
    for (int64_t first = 0, end; first < n; first = end) {
        end = n - first < CHUNK ? n : first + CHUNK;
        pd_mat X = side == PD_LEFT ? pd_mat_cols(B, first, end) : pd_mat_rows(B, first, end),
               old = pd_mat_dense(copy, X.rows, X.cols);
        for (int64_t i = 0; i < X.rows; i++)
            memcpy(copy + i * X.cols, X.at + i * X.stride, (size_t)X.cols * sizeof *copy);
        if (side == PD_LEFT)
            pd_gemm(X, 0, 1, V, u, old, PD_AS_IS);
        else
            pd_gemm(X, 0, 1, old, PD_AS_IS, V, u);
    }
}

/* A half of a system: a triangle on the diagonal of U, and the rows (PD_LEFT) or columns (PD_RIGHT) of B that it
 * belongs to. */
typedef struct half {
    pd_mat U, B;
} half;

static half half_of(pd_mat B, pd_mat U, pd_side side, int64_t first, int64_t end)
{
    return (half){ pd_mat_part(U, first, first, end - first, end - first),
                   side == PD_LEFT ? pd_mat_rows(B, first, end) : pd_mat_cols(B, first, end) };
}

/* Halves the triangle, solves the half that the other one depends on, and subtracts its part from the other one. With
 * op(U) = U on the left the upper half depends on the lower one; the transpose and the other side turn that round. */
static void solve(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    int64_t n = U.rows, top = (n / 2 + BLOCK - 1) / BLOCK * BLOCK;
    half upper, lower, *known = &lower, *rest = &upper;
    pd_mat R;

    if (n <= BLOCK) {
        solve_small(B, U, u, side);
        return;
    }
    upper = half_of(B, U, side, 0, top);
    lower = half_of(B, U, side, top, n);
    R = pd_mat_part(U, 0, top, top, n - top);
    if ((side == PD_LEFT) != (u == PD_AS_IS)) known = &upper, rest = &lower;
    solve(known->B, known->U, u, side);
    if (side == PD_LEFT)
        pd_gemm(rest->B, 1, -1, R, u, known->B, PD_AS_IS);
    else
        pd_gemm(rest->B, 1, -1, known->B, PD_AS_IS, R, u);
    solve(rest->B, rest->U, u, side);
}

void pd_trsm_by_blocks(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    assert(U.rows == U.cols && U.rows == (side == PD_LEFT ? B.rows : B.cols));
    if (B.rows > 0 && B.cols > 0) solve(B, U, u, side);
}

void pd_trsm(pd_mat B, pd_mat U, pd_turn u, pd_side side)
{
    (pd_blas_substitutes_fast() ? pd_trsm_by_blas : pd_trsm_by_blocks)(B, U, u, side);
}
