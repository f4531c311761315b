/* symmetric.c - stores only the lower half of symmetric matrices, as rows of square blocks, and multiplies them. */
#include "symmetric.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "convert.h"

#define LL(n) ((long long)(n))

static int64_t triangle(int64_t k)
{
    return k * (k + 1) / 2;
}

/* Returns the number k of block rows that a symmetric matrix has if `blocks` blocks of it are stored: k(k+1)/2 is
 * `blocks` (not negative). -1: there is no such k. For a valid number of blocks the square root of 8 blocks + 1 is 2 k
 * + 1. For k up to the limit below, the computed square root is exact, although 8 blocks + 1 may be rounded. */
static int64_t root_of_triangle(int64_t blocks)
{
    int64_t k = (int64_t)((sqrt(8 * (double)blocks + 1) - 1) / 2);

    return k <= 3000000000 && triangle(k) == blocks ? k : -1; /* no machine has memory for a larger k */
}

int pd_blockrows_of(pd_blockrows *out, pd_mat M, pd_error *err)
{
    int64_t k = M.rows > 0 && M.cols >= 0 && M.cols % M.rows == 0 ? root_of_triangle(M.cols / M.rows) : -1;

    if (k < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%lld rows and %lld columns are not block rows of a symmetric matrix: the columns must be 1, 3, "
                       "6, 10 ... times the rows",
                       LL(M.rows), LL(M.cols));
    *out = (pd_blockrows){ M, M.rows, k };
    return PD_OK;
}

int pd_blockrows_count(int64_t *k, int64_t n, int64_t b, pd_error *err)
{
    if (b < 1 || n < 0 || n % b != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%lld rows are not a multiple of the block side %lld", LL(n), LL(b));
    *k = n / b;
    return PD_OK;
}

int64_t pd_blockrows_cols(int64_t b, int64_t k)
{
    int64_t twice, cols;

    if (__builtin_mul_overflow(k, k + 1, &twice) || __builtin_mul_overflow(twice / 2, b, &cols)) return INT64_MAX;
    return cols;
}

static pd_mat part(pd_mat M, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    return (pd_mat){ M.at + row * M.stride + col, rows, cols, M.stride };
}

/* Returns a view of the first j blocks of block row i (a row of square blocks): from block (i, 0) up to, but not
 * including, block (i, j). */
static pd_mat before(pd_blockrows B, int64_t i, int64_t j)
{
    return part(B.at, 0, B.b * triangle(i), B.b, B.b * j);
}

static pd_mat block(pd_blockrows B, int64_t i, int64_t j)
{
    return part(B.at, 0, B.b * (triangle(i) + j), B.b, B.b);
}

static void copy(pd_mat to, pd_mat from)
{
    for (int64_t r = 0; r < from.rows; r++)
        memcpy(to.at + r * to.stride, from.at + r * from.stride, (size_t)from.cols * sizeof *to.at);
}

static void clear(pd_mat M)
{
    for (int64_t r = 0; r < M.rows; r++) memset(M.at + r * M.stride, 0, (size_t)M.cols * sizeof *M.at);
}

void pd_blockrows_product(pd_blockrows B, float beta, float alpha, pd_mat X)
{
    assert(X.rows == B.b * B.k);
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat Xi = part(X, i * B.b, 0, B.b, X.cols);
        pd_gemm(before(B, i, i), beta, alpha, Xi, PD_AS_IS, part(X, 0, 0, i * B.b, X.cols), PD_TRANSPOSED);
        pd_syrk(block(B, i, i), beta, alpha, Xi, PD_LEFT);
        pd_mirror(block(B, i, i));
    }
}

void pd_blockrows_set_diagonal(pd_blockrows B, const float *d)
{
    clear(B.at);
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat Bii = block(B, i, i);
        for (int64_t r = 0; r < B.b; r++) Bii.at[r * Bii.stride + r] = d[i * B.b + r];
    }
}

void pd_blockrows_materialise(pd_mat S, pd_blockrows B)
{
    int64_t b = B.b;

    assert(S.rows == b * B.k && S.cols == S.rows);
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat left = before(B, i, i);
        copy(part(S, i * b, 0, b, (i + 1) * b), before(B, i, i + 1));
        for (int64_t r = 0; r < b; r++)
            for (int64_t c = 0; c < left.cols; c++) S.at[c * S.stride + i * b + r] = left.at[r * left.stride + c];
    }
}

void pd_blockrows_diagonal(float *d, pd_blockrows B)
{
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat Bii = block(B, i, i);
        for (int64_t r = 0; r < B.b; r++) d[i * B.b + r] = Bii.at[r * Bii.stride + r];
    }
}

/* Sets *most to |x| if |x| is larger. Compares the bits of the numbers as integers, so that NaN counts as larger than
 * all numbers: fmax would ignore a NaN. */
static void raise(float *most, float x)
{
    uint32_t magnitude = pd_f32_bits(x) & 0x7fffffffu;

    if (magnitude > pd_f32_bits(*most)) *most = pd_f32_from_bits(magnitude);
}

void pd_blockrows_row_maxima(float *most, pd_blockrows B)
{
    int64_t b = B.b;

    memset(most, 0, (size_t)(b * B.k) * sizeof *most);
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat row = before(B, i, i + 1);
        for (int64_t r = 0; r < b; r++) {
            for (int64_t c = 0; c < row.cols; c++) {
                float x = row.at[r * row.stride + c];
                raise(&most[i * b + r], x);
                if (c < i * b)
                    /* The element x also stands for its mirror image above the diagonal, which is in row c. */
                    raise(&most[c], x);
            }
        }
    }
}

void pd_blockrows_scale(pd_blockrows C, pd_blockrows B, const float *v)
{
    assert(C.b == B.b && C.k == B.k);
    for (int64_t i = 0; i < B.k; i++) {
        pd_mat to = before(C, i, i + 1), from = before(B, i, i + 1);
        for (int64_t r = 0; r < B.b; r++)
            for (int64_t c = 0; c < from.cols; c++)
                to.at[r * to.stride + c] = from.at[r * from.stride + c] * v[i * B.b + r];
    }
}

static int check_padding(pd_mat P, pd_mat X, pd_blockrows *padded, pd_error *err)
{
    pd_blockrows given;
    int rc;

    if (X.rows > P.rows)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%lld rows are more than the block side, %lld", LL(X.rows),
                       LL(P.rows));
    if (X.rows > X.cols)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%lld rows are more than the columns, %lld", LL(X.rows), LL(X.cols));
    if (X.cols > P.cols)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%lld columns are more than block side times number of blocks, %lld",
                       LL(X.cols), LL(P.cols));
    if (X.rows < P.rows && X.rows != X.cols)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "below the block side only square matrices can be padded: %lld rows, %lld columns", LL(X.rows),
                       LL(X.cols));
    if ((rc = pd_blockrows_of(padded, P, err)) != PD_OK) return rc;
    if (X.rows == P.rows) return pd_blockrows_of(&given, X, err);
    return padded->k > 0
               ? PD_OK
               : pd_fail(err, PD_INVALID_ARGUMENT, "no columns are fewer than the block side, %lld", LL(P.rows));
}

int pd_blockrows_pad(pd_mat P, pd_mat X, pd_error *err)
{
    pd_blockrows padded = { 0 };
    int rc = check_padding(P, X, &padded, err);
    int64_t first;

    if (rc != PD_OK) return rc;
    clear(P);
    copy(part(P, 0, 0, X.rows, X.cols), X);
    for (int64_t r = X.rows; r < P.rows; r++) P.at[r * P.stride + r] = 1;
    first = X.rows < P.rows ? 1 : root_of_triangle(X.cols / P.rows);
    for (int64_t i = first; i < padded.k; i++) {
        pd_mat I = block(padded, i, i);
        for (int64_t r = 0; r < I.rows; r++) I.at[r * I.stride + r] = 1;
    }
    return PD_OK;
}
