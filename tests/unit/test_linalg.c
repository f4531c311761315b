/* Tests the BLAS wrappers against plain loops. */
#include "test.h"
#include "blascore.h"
#include "linalg.h"
#include "trsm.h"

enum { M = 7, N = 5, K = 6, GAP = 3 }; /* all sizes differ, and rows have gaps between them */

typedef struct fixture {
    float memory[8][16 * 16];
    pd_mat A, At, B, Bt, C, S, Sn, Y; /* op(A) has M rows and K columns, op(B) has K rows and N columns; S is M by M,
                                       * Sn is N by N */
} fixture;

static pd_mat filled(float *at, int64_t rows, int64_t cols, uint32_t seed)
{
    pd_mat X = { at, rows, cols, cols + GAP };

    for (int i = 0; i < 256; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return X;
}

static void set_up(fixture *f)
{
    f->A = filled(f->memory[0], M, K, 1);
    f->At = filled(f->memory[1], K, M, 2);
    f->B = filled(f->memory[2], K, N, 3);
    f->Bt = filled(f->memory[3], N, K, 4);
    f->C = filled(f->memory[4], M, N, 5);
    f->S = filled(f->memory[5], M, M, 6);
    f->Sn = filled(f->memory[6], N, N, 7);
    f->Y = filled(f->memory[7], M, N, 8);
}

static double at(pd_mat X, pd_turn turn, int64_t i, int64_t j)
{
    return (double)(turn == PD_AS_IS ? X.at[i * X.stride + j] : X.at[j * X.stride + i]);
}

/* Returns element (i, j) of a symmetric matrix whose lower half is stored. */
static double sym(pd_mat S, int64_t i, int64_t j)
{
    return i >= j ? at(S, PD_AS_IS, i, j) : at(S, PD_AS_IS, j, i);
}

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-5) fail_msg("%.9g and %.9g", a, b);
}

static void multiplies(fixture *f, pd_mat A, pd_turn a, pd_mat B, pd_turn b)
{
    float before[256];
    pd_mat C0 = f->C;

    memcpy(before, f->C.at, sizeof before);
    C0.at = before;
    pd_gemm(f->C, 0.5f, 2.0f, A, a, B, b);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) sum += at(A, a, i, k) * at(B, b, k, j);
            assert_near(at(f->C, PD_AS_IS, i, j), 0.5 * at(C0, PD_AS_IS, i, j) + 2 * sum);
        }
    for (int64_t i = 0; i < M; i++) /* the gaps between the rows of C are unchanged */
        assert_memory_equal(f->C.at + i * f->C.stride + N, before + i * f->C.stride + N, GAP * sizeof(float));
}

FIXTURE(fixture, set_up, NULL);

TEST(gemm_takes_every_turn, fixture *f)
{
    multiplies(f, f->A, PD_AS_IS, f->B, PD_AS_IS);
    multiplies(f, f->At, PD_TRANSPOSED, f->B, PD_AS_IS);
    multiplies(f, f->A, PD_AS_IS, f->Bt, PD_TRANSPOSED);
    multiplies(f, f->At, PD_TRANSPOSED, f->Bt, PD_TRANSPOSED);
}

TEST(gemm_overwrites_nan_with_beta_0, fixture *f)
{
    for (int i = 0; i < 256; i++) f->C.at[i] = NAN;
    pd_gemm(f->C, 0, 1, f->A, PD_AS_IS, f->B, PD_AS_IS);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) assert_true(isfinite(at(f->C, PD_AS_IS, i, j)));
}

static void syrk_of(fixture *f, pd_mat S, pd_mat A, pd_side side)
{
    pd_turn turn = side == PD_LEFT ? PD_AS_IS : PD_TRANSPOSED;
    int64_t inner = side == PD_LEFT ? A.cols : A.rows;
    float before[256];
    pd_mat S0 = S;

    (void)f;
    memcpy(before, S.at, sizeof before);
    S0.at = before;
    pd_syrk(S, 0.9f, 0.1f, A, side);
    for (int64_t i = 0; i < S.rows; i++)
        for (int64_t j = 0; j < S.rows; j++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++) sum += at(A, turn, i, k) * at(A, turn, j, k);
            if (i >= j)
                assert_near(at(S, PD_AS_IS, i, j), 0.9 * at(S0, PD_AS_IS, i, j) + 0.1 * sum);
            else
                assert_true(at(S, PD_AS_IS, i, j) == at(S0, PD_AS_IS, i, j)); /* the upper half of S is unchanged */
        }
}

TEST(syrk_keeps_either_dimension, fixture *f)
{
    syrk_of(f, f->S, f->Y, PD_LEFT);
    syrk_of(f, f->Sn, f->Y, PD_RIGHT);
}

/* Computes a part of the rows of a product, from each row and to each row. */
TEST(rows_of_syrk_are_those_of_the_whole, fixture *f)
{
    for (int way = 0; way < 2; way++) {
        pd_side side = way == 0 ? PD_LEFT : PD_RIGHT;
        pd_mat S = way == 0 ? f->S : f->Sn, whole = { f->C.at, S.rows, S.rows, S.stride };
        float before[256];
        memcpy(before, S.at, sizeof before);
        memcpy(whole.at, S.at, sizeof before);
        pd_syrk(whole, 0.9f, 0.1f, f->Y, side);
        for (int64_t first = 0; first <= S.rows; first++)
            for (int64_t end = first; end <= S.rows; end++) {
                memcpy(S.at, before, sizeof before);
                pd_syrk_rows(S, 0.9f, 0.1f, f->Y, side, first, end);
                for (int64_t i = 0; i < 256; i++) {
                    int64_t row = i / S.stride, col = i % S.stride;
                    if (row >= first && row < end && col <= row)
                        assert_near((double)S.at[i], (double)whole.at[i]);
                    else
                        assert_true(S.at[i] == before[i]);
                }
            }
    }
}

TEST(symm_multiplies_from_either_side, fixture *f)
{
    pd_symm(f->C, 0, 1, f->S, f->Y, PD_LEFT);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < M; k++) sum += sym(f->S, i, k) * at(f->Y, PD_AS_IS, k, j);
            assert_near(at(f->C, PD_AS_IS, i, j), sum);
        }
    pd_symm(f->C, 0, 1, f->Sn, f->Y, PD_RIGHT);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < N; k++) sum += at(f->Y, PD_AS_IS, i, k) * sym(f->Sn, k, j);
            assert_near(at(f->C, PD_AS_IS, i, j), sum);
        }
}

/* Returns element (i, j) of op(U). U is upper triangular, so elements below its diagonal count as 0. */
static double tri(pd_mat U, pd_turn u, int64_t i, int64_t j)
{
    return (u == PD_AS_IS ? i > j : j > i) ? 0 : at(U, u, i, j);
}

/* Sets the elements below U's diagonal to NaN, which must not be read, and its diagonal to 2. Returns U. */
static pd_mat triangle(pd_mat U)
{
    for (int64_t i = 0; i < U.rows; i++)
        for (int64_t j = 0; j <= i; j++) U.at[i * U.stride + j] = j == i ? 2 : NAN;
    return U;
}

TEST(trmm_multiplies_by_the_upper_half_alone, fixture *f)
{
    for (int way = 0; way < 4; way++) {
        pd_turn u = way % 2 == 0 ? PD_AS_IS : PD_TRANSPOSED;
        pd_side side = way / 2 == 0 ? PD_LEFT : PD_RIGHT;
        pd_mat U = triangle(side == PD_LEFT ? f->S : f->Sn), Y0 = f->Y;
        float before[256];
        memcpy(before, f->Y.at, sizeof before);
        Y0.at = before;
        pd_trmm(f->Y, U, u, side);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                double sum = 0;
                for (int64_t k = 0; k < U.rows; k++)
                    sum += side == PD_LEFT ? tri(U, u, i, k) * at(Y0, PD_AS_IS, k, j)
                                           : at(Y0, PD_AS_IS, i, k) * tri(U, u, k, j);
                assert_near(at(f->Y, PD_AS_IS, i, j) / (1 + fabs(sum)), sum / (1 + fabs(sum)));
            }
        memcpy(f->Y.at, before, sizeof before);
    }
}

TEST(parts_of_trmm_are_those_of_the_whole, fixture *f)
{
    for (int way = 0; way < 4; way++) {
        pd_turn u = way % 2 == 0 ? PD_AS_IS : PD_TRANSPOSED;
        pd_side side = way / 2 == 0 ? PD_LEFT : PD_RIGHT;
        pd_mat U = triangle(side == PD_LEFT ? f->S : f->Sn), whole = f->C;
        memcpy(whole.at, f->Y.at, sizeof f->memory[0]);
        pd_trmm(whole, U, u, side);
        for (int64_t first = 0; first <= U.rows; first++)
            for (int64_t end = first; end <= U.rows; end++) {
                float to[256];
                for (int i = 0; i < 256; i++) to[i] = 7;
                pd_trmm_part((pd_mat){ to, M, N, f->Y.stride }, f->Y, U, u, side, first, end);
                for (int64_t i = 0; i < M * f->Y.stride; i++) {
                    int64_t row = i / f->Y.stride, col = i % f->Y.stride, place = side == PD_LEFT ? row : col;
                    if (place >= first && place < end && col < N)
                        assert_near((double)to[i] / (1 + fabs((double)to[i])),
                                    (double)whole.at[i] / (1 + fabs((double)to[i])));
                    else
                        assert_true(to[i] == 7);
                }
            }
    }
}

TEST(trsm_undoes_trmm, fixture *f)
{
    for (int way = 0; way < 4; way++) {
        pd_turn u = way % 2 == 0 ? PD_AS_IS : PD_TRANSPOSED;
        pd_side side = way / 2 == 0 ? PD_LEFT : PD_RIGHT;
        pd_mat U = triangle(side == PD_LEFT ? f->S : f->Sn);
        float before[256];
        memcpy(before, f->Y.at, sizeof before);
        pd_trmm(f->Y, U, u, side);
        pd_trsm(f->Y, U, u, side);
        for (int i = 0; i < 256; i++) assert_near((double)f->Y.at[i], (double)before[i]); /* the gaps, too */
    }
}

/* Triangles of more than 48 rows are cut into halves. Sizes up to 131 are cut several times, some into unequal
 * halves. */
TEST(a_product_of_triangles_is_a_triangle)
{
    enum { MOST = 131, STRIDE = MOST + GAP };
    static float t[MOST * STRIDE], u[MOST * STRIDE], before[MOST * STRIDE];

    for (int64_t n = 0; n <= MOST; n += n < 3 ? 1 : 16) {
        pd_mat T = { t, n, n, STRIDE }, U = { u, n, n, STRIDE };
        for (int i = 0; i < MOST * STRIDE; i++) {
            t[i] = i / STRIDE > i % STRIDE ? NAN : (float)(i % 7) - 3;
            before[i] = u[i] = i / STRIDE > i % STRIDE ? 0 : (float)(i % 11) - 5;
        }
        pd_trmm_upper(U, T);
        for (int64_t i = 0; i < MOST; i++)
            for (int64_t j = 0; j < STRIDE; j++) {
                double sum = 0;
                if (i >= n || j >= n)
                    sum = (double)before[i * STRIDE + j];
                else
                    for (int64_t k = i; k <= j; k++) sum += (double)t[i * STRIDE + k] * (double)before[k * STRIDE + j];
                assert_true((double)u[i * STRIDE + j] == sum); /* whole numbers */
            }
    }
}

/* Computes columns [first, end) of a product of triangles. All elements are whole numbers. */
TEST(columns_of_a_product_of_triangles_are_those_of_the_whole)
{
    enum { SIDE = 120, STRIDE = SIDE + GAP };
    static const int64_t bounds[] = { 0, 1, 17, 50, 64, 119, SIDE };
    static float t[SIDE * STRIDE], u[SIDE * STRIDE], whole[SIDE * STRIDE], before[SIDE * STRIDE];
    pd_mat T = { t, SIDE, SIDE, STRIDE }, U = { u, SIDE, SIDE, STRIDE };

    for (int i = 0; i < SIDE * STRIDE; i++) {
        t[i] = i / STRIDE > i % STRIDE ? NAN : (float)(i % 7) - 3;
        before[i] = whole[i] = i / STRIDE > i % STRIDE ? 0 : (float)(i % 11) - 5;
    }
    pd_trmm_upper((pd_mat){ whole, SIDE, SIDE, STRIDE }, T);
    for (size_t a = 0; a < sizeof bounds / sizeof bounds[0]; a++)
        for (size_t b = a; b < sizeof bounds / sizeof bounds[0]; b++) {
            memcpy(u, before, sizeof u);
            pd_trmm_upper_columns(U, T, bounds[a], bounds[b]);
            for (int i = 0; i < SIDE * STRIDE; i++) {
                bool inside = i % STRIDE >= bounds[a] && i % STRIDE < bounds[b];
                assert_true(u[i] == (inside ? whole[i] : before[i]));
            }
        }
}

TEST(symv_reads_the_lower_half_alone, fixture *f)
{
    float x[M], y[M];

    for (int64_t i = 0; i < M; i++) {
        x[i] = (float)i - 2.5f;
        y[i] = NAN;
        for (int64_t j = i + 1; j < M; j++) f->S.at[i * f->S.stride + j] = NAN;
    }
    pd_symv(y, f->S, x);
    for (int64_t i = 0; i < M; i++) {
        double sum = 0;
        for (int64_t k = 0; k < M; k++) sum += sym(f->S, i, k) * (double)x[k];
        assert_near((double)y[i], sum);
    }
}

TEST(gemv_takes_both_turns, fixture *f)
{
    float x[K], y[M], z[M];

    for (int k = 0; k < K; k++) x[k] = (float)k - 2.5f;
    for (int i = 0; i < M; i++) y[i] = z[i] = (float)i;
    pd_gemv(y, 2, 1, f->A, PD_AS_IS, x);
    pd_gemv(z, 2, 1, f->At, PD_TRANSPOSED, x);
    for (int64_t i = 0; i < M; i++) {
        double sum = 0, turned = 0;
        for (int64_t k = 0; k < K; k++) {
            sum += at(f->A, PD_AS_IS, i, k) * (double)x[k];
            turned += at(f->At, PD_TRANSPOSED, i, k) * (double)x[k];
        }
        assert_near((double)y[i], 2.0 * (double)i + sum);
        assert_near((double)z[i], 2.0 * (double)i + turned);
    }
}

/* Computes the lower half of A A' and of A' A. Matrices of more than 96 rows are cut into halves; sizes up to 230
 * are cut more than once. */
TEST_WITH(NULL, NULL, half_a_product_is_the_lower_half_of_the_whole)
{
    enum { MOST = 230, INNER = 3, STRIDE = MOST + GAP };
    static float a[MOST * STRIDE], s[MOST * STRIDE];

    for (int64_t n = 0; n <= MOST; n += n < 3 ? 1 : 37)
        for (int turns = 0; turns < 2; turns++) {
            pd_turn turn = turns == 0 ? PD_AS_IS : PD_TRANSPOSED, back = turns == 0 ? PD_TRANSPOSED : PD_AS_IS;
            pd_mat A = filled(a, turns == 0 ? n : INNER, turns == 0 ? INNER : n, 1), S = { s, n, n, STRIDE };
            A.stride = A.cols + GAP;
            for (int i = 0; i < MOST * STRIDE; i++) a[i] = (float)(i % 17) - 8, s[i] = NAN;
            pd_gemm_half(S, 0.5f, A, turn, A, back);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j <= i; j++) {
                    double sum = 0;
                    for (int64_t k = 0; k < INNER; k++) sum += at(A, turn, i, k) * at(A, turn, j, k);
                    assert_near(at(S, PD_AS_IS, i, j), 0.5 * sum);
                }
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = n; j < STRIDE; j++) assert_true(isnan(s[i * STRIDE + j]));
        }
}

TEST_WITH(NULL, NULL, mirrors_the_lower_half)
{
    enum { MOST = 100, STRIDE = MOST + GAP }; /* many of pd_mirror's squares of 8 x 8, and a remainder */
    static float memory[MOST * STRIDE], before[MOST * STRIDE];

    for (int64_t n = 0; n <= MOST; n += n < 4 ? 1 : 12) {
        pd_mat S = { memory, n, n, STRIDE };
        for (int i = 0; i < MOST * STRIDE; i++) memory[i] = before[i] = (float)i;
        pd_mirror(S);
        for (int64_t i = 0; i < MOST; i++)
            for (int64_t j = 0; j < STRIDE; j++) {
                bool in_upper_half = i < j && j < n;
                assert_true(memory[i * STRIDE + j] ==
                            (in_upper_half ? before[j * STRIDE + i] : before[i * STRIDE + j]));
            }
    }
}

TEST_WITH(NULL, NULL, mirrors_doubles)
{
    enum { MOST = 40 };
    static double S[MOST * MOST];

    for (int64_t n = 0; n <= MOST; n += n < 4 ? 1 : 12) {
        for (int i = 0; i < MOST * MOST; i++) S[i] = i + 0x1p-40;
        pd_mirror_f64(S, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                assert_true(S[i * n + j] == (double)(i < j ? j * n + i : i * n + j) + 0x1p-40);
    }
}

TEST(takes_matrices_without_elements, fixture *f)
{
    pd_mat none = pd_mat_dense(NULL, 0, N), thin = pd_mat_dense(f->A.at, M, 0), empty = pd_mat_dense(f->B.at, 0, N),
           C = pd_mat_dense(f->C.at, M, N);

    pd_gemm(none, 0, 1, pd_mat_dense(NULL, 0, K), PD_AS_IS, f->B, PD_AS_IS);
    pd_syrk(pd_mat_dense(NULL, 0, 0), 0, 1, none, PD_LEFT);
    pd_symm(none, 0, 1, pd_mat_dense(NULL, 0, 0), none, PD_LEFT);
    pd_trmm(none, pd_mat_dense(NULL, 0, 0), PD_AS_IS, PD_LEFT);
    pd_trsm(none, pd_mat_dense(NULL, 0, 0), PD_AS_IS, PD_LEFT);
    pd_symv(NULL, pd_mat_dense(NULL, 0, 0), NULL);
    pd_gemm(C, 0, 1, thin, PD_AS_IS, empty, PD_AS_IS); /* the inner dimension is 0, so every element is an empty sum */
    for (int i = 0; i < M * N; i++) assert_true(C.at[i] == 0);
}

TEST_WITH(NULL, NULL, names_the_blas_core_in_use)
{
    assert_true(strlen(pd_blas_core()) > 0);
}

TEST_WITH(NULL, NULL, computes_with_the_openmp_flavour)
{
    assert_true(pd_blas_uses_openmp());
}

TEST_WITH(NULL, NULL, calls_an_old_core_on_a_new_cpu_a_poor_choice)
{
    assert_non_null(pd_blas_judge("Prescott", true, false));
    assert_non_null(pd_blas_judge("Nehalem", true, true));
    assert_non_null(pd_blas_judge("Haswell", true, true));
    assert_null(pd_blas_judge("Prescott", false, false)); /* no warning on an old CPU, which has no better core to
                                                           * choose */
    assert_null(pd_blas_judge("Haswell", true, false));
    assert_null(pd_blas_judge("SkylakeX", true, true));
    assert_null(pd_blas_judge("a core of next year", true, true));
}
