/* small_product.c - multiplies small matrices. op(B) is copied, one panel of columns after the other, so that a panel
 * is contiguous and as wide as a tile. A tile of the product, a few rows of a panel, is summed in registers. */
#include "small_product.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "cpu.h"

/* Largest tile of all instruction sets: rows and columns. */
enum { ROWS = 8, COLS = 48 };

/* An operand: element (i, k) of op(A) is at[i * row + k * col]. */
typedef struct operand {
    const float *at;
    int64_t row, col;
} operand;

/* Defines a function that computes a tile of `rows` x (vectors * lanes) elements: c <- beta c + alpha op(A) op(B), over
 * n terms. row[r] points to row r of op(A), whose elements are `step` floats apart. The panel has the rows of op(B),
 * which are `wide` floats apart. The rows of c are `stride` floats apart. With beta = 0 the old c is not read. */
/* clang-format off */
#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < (n); i++)
#define TILE(name, attribute, vector, lanes, rows, vectors, fused)                                                     \
    attribute static void name(float *c, int64_t stride, float beta, float alpha, const float *const *row,             \
                               int64_t step, const float *panel, int64_t wide, int64_t n)                              \
    {                                                                                                                  \
        vector sum[rows][vectors] = { { { 0 } } }, b[vectors], a;                                                      \
        const float *at[rows];                                                                                         \
        EACH(r, rows) at[r] = row[r];                                                                                  \
        for (int64_t k = 0; k < n; k++, panel += wide) {                                                               \
            EACH(v, vectors) b[v] = *(const vector *)(panel + v * lanes);                                              \
            EACH(r, rows) {                                                                                            \
                a = *at[r] - (vector){ 0 };                                                                            \
                at[r] += step;                                                                                         \
                EACH(v, vectors) sum[r][v] = fused(a, b[v], sum[r][v]);                                                \
            }                                                                                                          \
        }                                                                                                              \
        EACH(r, rows) {                                                                                                \
            EACH(v, vectors) {                                                                                         \
                vector##_u *to = (vector##_u *)(c + r * stride + v * lanes);                                           \
                sum[r][v] *= alpha;                                                                                    \
                if (beta != 0) sum[r][v] = beta * *to + sum[r][v];                                                     \
                *to = sum[r][v];                                                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }
/* clang-format on */
#define ATTRIBUTE(arch) __attribute__((noinline, target("arch=" arch)))

typedef void tile_function(float *c, int64_t stride, float beta, float alpha, const float *const *row, int64_t step,
                           const float *panel, int64_t wide, int64_t n);

typedef float four __attribute__((vector_size(16), may_alias));
typedef float four_u __attribute__((vector_size(16), aligned(4), may_alias));

/* How an instruction set computes tiles: `rows` rows, and 1 to `most` vectors of `lanes` columns. `rows` is 0 if it has
 * no instruction that rounds a product and a sum together. */
typedef struct tiling {
    int rows, lanes, most;
    tile_function *tile[3];
} tiling;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

/* 16 registers hold the 12 sums of 6 rows, 32 registers the 24 sums of 8 rows, beside the operands. */
TILE(avx2_1, ATTRIBUTE("x86-64-v3"), __m256, 8, 6, 1, _mm256_fmadd_ps)
TILE(avx2_2, ATTRIBUTE("x86-64-v3"), __m256, 8, 6, 2, _mm256_fmadd_ps)
TILE(avx512_1, ATTRIBUTE("x86-64-v4"), __m512, 16, 8, 1, _mm512_fmadd_ps)
TILE(avx512_2, ATTRIBUTE("x86-64-v4"), __m512, 16, 8, 2, _mm512_fmadd_ps)
TILE(avx512_3, ATTRIBUTE("x86-64-v4"), __m512, 16, 8, 3, _mm512_fmadd_ps)

static const tiling tilings[PD_CPU_SETS] = { { 0 },
                                             { 6, 8, 2, { avx2_1, avx2_2 } },
                                             { 8, 16, 3, { avx512_1, avx512_2, avx512_3 } } };
#elif defined(__FP_FAST_FMAF)
PD_INLINE four fused_4(four a, four b, four c)
{
    for (int i = 0; i < 4; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

TILE(plain_1, , four, 4, 6, 1, fused_4)
TILE(plain_2, , four, 4, 6, 2, fused_4)
TILE(plain_3, , four, 4, 6, 3, fused_4)

static const tiling tilings[PD_CPU_SETS] = { { 6, 4, 3, { plain_1, plain_2, plain_3 } } };
#else
static const tiling tilings[PD_CPU_SETS];
#endif

bool pd_product_is_small(int64_t rows, int64_t cols, int64_t terms)
{
    return rows <= PD_SMALL_SIDE && cols <= PD_SMALL_SIDE && terms <= PD_SMALL_SIDE && tilings[pd_cpu_in_use].rows > 0;
}

static operand operand_of(pd_mat M, pd_turn turn)
{
    return turn == PD_AS_IS ? (operand){ M.at, M.stride, 1 } : (operand){ M.at, 1, M.stride };
}

/* Writes the transpose of four rows of four elements, which are `from_row` floats apart. */
PD_INLINE void transpose_4(float *to, int64_t to_row, const float *from, int64_t from_row)
{
    four a = *(const four_u *)from, b = *(const four_u *)(from + from_row), c = *(const four_u *)(from + 2 * from_row),
         d = *(const four_u *)(from + 3 * from_row), ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
         cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    *(four_u *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(four_u *)(to + to_row) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(four_u *)(to + 2 * to_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four_u *)(to + 3 * to_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* Writes the transpose of `rows` rows of n elements. */
PD_CLONES(void, transpose, (float *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows, int64_t n),
          (to, to_row, from, from_row, rows, n))
{
    int64_t whole = n / 4 * 4, j = 0;

    for (; j + 4 <= rows; j += 4) {
        for (int64_t k = 0; k < whole; k += 4)
            transpose_4(to + k * to_row + j, to_row, from + j * from_row + k, from_row);
        for (int64_t k = whole; k < n; k++)
            for (int64_t i = j; i < j + 4; i++) to[k * to_row + i] = from[i * from_row + k];
    }
    for (; j < rows; j++)
        for (int64_t k = 0; k < n; k++) to[k * to_row + j] = from[j * from_row + k];
}

/* Copies a panel of op(B): `width` columns, filled with zeros up to `wide` columns. */
static void pack(float *panel, operand B, int64_t n, int64_t width, int64_t wide)
{
    if (B.col != 1) transpose(panel, wide, B.at, B.col, width, n);
    for (int64_t k = 0; k < n; k++) {
        if (B.col == 1) memcpy(panel + k * wide, B.at + k * B.row, (size_t)width * sizeof *panel);
        for (int64_t j = width; j < wide; j++) panel[k * wide + j] = 0;
    }
}

/* Adds a tile to C: c <- beta c + alpha sum. The tile has `wide` columns, of which C has n. With `lower`, row r of the
 * tile has only diagonal + r + 1 columns of C. */
PD_CLONES(void, put,
          (float *restrict c, int64_t stride, const float *restrict sum, int64_t wide, float beta, float alpha,
           int64_t rows, int64_t n, bool lower, int64_t diagonal),
          (c, stride, sum, wide, beta, alpha, rows, n, lower, diagonal))
{
    for (int64_t r = 0; r < rows; r++, c += stride, sum += wide) {
        int64_t some = lower && diagonal + r + 1 < n ? diagonal + r + 1 : n;
        if (beta == 0)
            for (int64_t j = 0; j < some; j++) c[j] = alpha * sum[j];
        else
            for (int64_t j = 0; j < some; j++) c[j] = beta * c[j] + alpha * sum[j];
    }
}

/* Prefetches part `index` of a panel of op(B), which is divided into `shares` parts. The panel has `terms` rows, and
 * `width` columns from column `left` on. Each tile of a panel prefetches one part of the next panel, so that all of it
 * is in the cache when its first tile begins. */
static void fetch(operand B, int64_t terms, int64_t left, int64_t width, int64_t index, int64_t shares)
{
    enum { LINE = 16 };
    int64_t rows = B.col == 1 ? terms : width, n = B.col == 1 ? width : terms, stride = B.col == 1 ? B.row : B.col;

    for (int64_t r = rows * index / shares; r < rows * (index + 1) / shares; r++)
        for (int64_t j = 0; j < n; j += LINE) __builtin_prefetch(B.at + left * B.col + r * stride + j);
}

/* Computes columns [left, left + width) of C, with `lower` from row `left` on, by a panel of op(B). Rows that a tile
 * has beyond the end of C are computed from the last row of A, and not stored. Meanwhile prefetches the next panel,
 * which has `more` columns. */
static void multiply_panel(const tiling *t, pd_mat C, float beta, float alpha, operand A, const float *panel,
                           int64_t terms, int64_t left, int64_t width, bool lower, operand B, int64_t more)
{
    alignas(64) float out[ROWS * COLS];
    int64_t wide = (width + t->lanes - 1) / t->lanes * t->lanes, top = lower ? left : 0,
            tiles = (C.rows - top + t->rows - 1) / t->rows;

    for (int64_t i = top; i < C.rows; i += t->rows) {
        const float *row[ROWS];
        float *c = C.at + i * C.stride + left;
        int64_t rows = C.rows - i < t->rows ? C.rows - i : t->rows, diagonal = i - left,
                n = lower && diagonal + rows < width ? diagonal + rows : width, vectors = (n + t->lanes - 1) / t->lanes;
        tile_function *tile = t->tile[vectors - 1];
        fetch(B, terms, left + width, more, (i - top) / t->rows, tiles);
        for (int64_t r = 0; r < t->rows; r++) row[r] = A.at + (i + (r < rows ? r : rows - 1)) * A.row;
        if (rows == t->rows && n == vectors * t->lanes && (!lower || n <= diagonal + 1)) {
            tile(c, C.stride, beta, alpha, row, A.col, panel, wide, terms);
        } else {
            tile(out, COLS, 0, 1, row, A.col, panel, wide, terms);
            put(c, C.stride, out, COLS, beta, alpha, rows, n, lower, diagonal);
        }
    }
}

void pd_small_product(pd_mat C, float beta, float alpha, pd_mat A, pd_turn a, pd_mat B, pd_turn b, bool lower)
{
    const tiling *t = &tilings[pd_cpu_in_use];
    alignas(64) float panel[PD_SMALL_SIDE * COLS];
    operand op_a = operand_of(A, a), op_b = operand_of(B, b);
    int64_t terms = a == PD_AS_IS ? A.cols : A.rows, most = t->most * t->lanes;

    assert(pd_product_is_small(C.rows, C.cols, terms));
    for (int64_t left = 0, width = C.cols < most ? C.cols : most, more; left < C.cols; left += width, width = more) {
        more = C.cols - left - width < most ? C.cols - left - width : most;
        pack(panel, (operand){ op_b.at + left * op_b.col, op_b.row, op_b.col }, terms, width,
             (width + t->lanes - 1) / t->lanes * t->lanes);
        multiply_panel(t, C, beta, alpha, op_a, panel, terms, left, width, lower, op_b, more);
    }
}
