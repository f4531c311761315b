/* Tests products of small matrices: every element has the bits of its chain of fused multiplications and additions,
 * with every instruction set that has them, and nothing beside the product is written. */
#include "test.h"
#include "cpu.h"
#include "linalg.h"
#include "small_product.h"

enum { MOST = PD_SMALL_SIDE + 1, GAP = 5, ROOM = MOST * (MOST + GAP) };

static float a[ROOM], b[ROOM], c[ROOM], old[ROOM];

/* Fills `at` with numbers of many sizes. With `whole` they are small integers, whose sums are often half way between
 * two float32 numbers after they are scaled. */
static void fill(float *at, uint32_t seed, bool whole)
{
    for (int i = 0; i < ROOM; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = whole ? ldexpf((float)(seed >> 20) - 2048, seed >> 8 & 3 ? 0 : 12)
                      : ldexpf((float)(seed >> 8) / 8388608.0F - 1, (int)(seed >> 3 & 7) - 4);
    }
}

static pd_mat matrix(float *at, int64_t rows, int64_t cols)
{
    return (pd_mat){ at, rows, cols, cols + GAP };
}

static float element(pd_mat M, pd_turn turn, int64_t i, int64_t j)
{
    return turn == PD_AS_IS ? M.at[i * M.stride + j] : M.at[j * M.stride + i];
}

/* Checks C against the definition, and that the elements beside it, and above the diagonal with `lower`, are `old`. */
static void compare(pd_mat C, float beta, float alpha, pd_mat A, pd_turn ta, pd_mat B, pd_turn tb, int64_t terms,
                    bool lower)
{
    for (int64_t i = 0; i < C.rows; i++)
        for (int64_t j = 0; j < C.stride; j++) {
            float sum = 0, expected = old[i * C.stride + j];
            if (j < C.cols && (j <= i || !lower)) {
                for (int64_t k = 0; k < terms; k++) sum = fmaf(element(A, ta, i, k), element(B, tb, k, j), sum);
                sum = alpha * sum;
                expected = beta == 0 ? sum : beta * expected + sum;
            }
            if (memcmp(&expected, &C.at[i * C.stride + j], sizeof expected) != 0)
                fail_msg("%s, %lld x %lld x %lld: element %lld, %lld is %.9g, expected %.9g",
                         pd_cpu_names[pd_cpu_in_use], (long long)C.rows, (long long)C.cols, (long long)terms,
                         (long long)i, (long long)j, (double)C.at[i * C.stride + j], (double)expected);
        }
}

static void every_set(void (*check)(void))
{
    pd_cpu chosen = pd_cpu_in_use;

    int sets = 0;

    for (pd_cpu set = PD_CPU_GENERIC; set <= pd_cpu_newest(); set++) {
        assert_int_equal(pd_cpu_use(pd_cpu_names[set], NULL), PD_OK);
        if (!pd_product_is_small(1, 1, 1)) continue;
        check();
        sets++;
    }
    assert_int_equal(pd_cpu_use(pd_cpu_names[chosen], NULL), PD_OK);
    if (sets == 0) skip();
}

static void multiplies(int64_t rows, int64_t cols, int64_t terms, bool whole)
{
    fill(a, 1, whole), fill(b, 2, whole), fill(old, 3, whole);
    for (int way = 0; way < 8; way++) {
        pd_turn ta = way & 1 ? PD_TRANSPOSED : PD_AS_IS, tb = way & 2 ? PD_TRANSPOSED : PD_AS_IS;
        pd_mat A = ta == PD_AS_IS ? matrix(a, rows, terms) : matrix(a, terms, rows),
               B = tb == PD_AS_IS ? matrix(b, terms, cols) : matrix(b, cols, terms), C = matrix(c, rows, cols);
        float beta = way & 4 ? 0.7F : 0, alpha = way & 4 ? -1.3F : 1;
        memcpy(c, old, sizeof c);
        pd_gemm(C, beta, alpha, A, ta, B, tb);
        compare(C, beta, alpha, A, ta, B, tb, terms, false);
    }
}

static void multiplies_all_shapes(void)
{
    static const int64_t sizes[][3] = { { 1, 1, 1 },    { 3, 5, 7 },    { 8, 48, 9 },    { 9, 49, 16 },
                                        { 31, 33, 1 },  { 48, 16, 64 }, { 65, 100, 31 }, { 128, 128, 128 },
                                        { 7, 256, 40 }, { 256, 7, 40 }, { 20, 20, 256 } };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int whole = 0; whole < 2; whole++) multiplies(sizes[i][0], sizes[i][1], sizes[i][2], whole);
}

TEST(elements_are_chains_of_fused_additions)
{
    every_set(multiplies_all_shapes);
}

static void multiplies_by_itself(void)
{
    static const int64_t sizes[][2] = { { 1, 3 }, { 17, 8 }, { 48, 48 }, { 100, 130 }, { 128, 64 }, { 256, 12 } };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 4; way++) {
            int64_t n = sizes[i][0], terms = sizes[i][1];
            pd_mat A = way & 1 ? matrix(a, terms, n) : matrix(a, n, terms), S = matrix(c, n, n);
            pd_turn turn = way & 1 ? PD_TRANSPOSED : PD_AS_IS, other = way & 1 ? PD_AS_IS : PD_TRANSPOSED;
            float beta = way & 2 ? 0.95F : 0, alpha = way & 2 ? 0.05F : 1;
            fill(a, 7, false), fill(old, 8, false);
            memcpy(c, old, sizeof c);
            pd_syrk(S, beta, alpha, A, way & 1 ? PD_RIGHT : PD_LEFT);
            compare(S, beta, alpha, A, turn, A, other, terms, true);
        }
}

TEST(symmetric_products_write_the_lower_half_alone)
{
    every_set(multiplies_by_itself);
}

/* Subnormal results, and sums half way between two float32 numbers by one place of float64, are where a product that is
 * not fused gives other bits. */
static void rounds_once(void)
{
    static const float at[][3] = {
        { 0x1.000002p0F, 0x1.fffffep-1F, -1 },     { 0x1.8p-75F, 0x1.000002p-75F, 0x1p-149F },
        { 0x1p-75F, 0x1p-75F, 0x1p-149F },         { 0x1.000002p0F, 0x1p-24F, 1 },
        { -0x1.000002p0F, 0x1p-25F, 1 },           { 0x1.fffffep127F, 2, -0x1.fffffep127F },
        { 0x1.000001p0F, 0x1.000001p-24F, 0x1p0F }
    };

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        float A[2] = { 1, at[i][0] }, B[2] = { at[i][2], at[i][1] }, C, expected = fmaf(at[i][0], at[i][1], at[i][2]);
        pd_gemm(pd_mat_dense(&C, 1, 1), 0, 1, pd_mat_dense(A, 1, 2), PD_AS_IS, pd_mat_dense(B, 2, 1), PD_AS_IS);
        if (memcmp(&C, &expected, sizeof C) != 0)
            fail_msg("%s, case %zu: %a, expected %a", pd_cpu_names[pd_cpu_in_use], i, (double)C, (double)expected);
    }
}

TEST(products_are_rounded_once)
{
    every_set(rounds_once);
}

static void keeps_bad_values(void)
{
    float A[3] = { 1, INFINITY, NAN }, B[3] = { 1, 1, 1 }, C[9];

    pd_gemm(pd_mat_dense(C, 3, 3), 0, 1, pd_mat_dense(A, 3, 1), PD_AS_IS, pd_mat_dense(B, 1, 3), PD_AS_IS);
    for (int j = 0; j < 3; j++) assert_true(C[j] == 1 && isinf(C[3 + j]) && isnan(C[6 + j]));
}

TEST(infinite_values_and_nan_stay_in_their_rows)
{
    every_set(keeps_bad_values);
}

TEST(an_empty_sum_is_zero)
{
    fill(old, 4, false);
    memcpy(c, old, sizeof c);
    pd_gemm(matrix(c, 9, 50), 0, 1, matrix(a, 9, 0), PD_AS_IS, matrix(b, 0, 50), PD_AS_IS);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 50; j++) assert_true(c[i * 55 + j] == 0);
}
