/* Tests inverse roots by coupled Newton, as Google's Shampoo takes them. */
#include "test.h"
#include "root_types.h"
#include "root.h"

enum { MOST = 24 };
typedef double square[MOST][MOST];

static double number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 8388608.0 - 1;
}

/* Sets S to R S R with a random reflection R. This keeps the eigenvalues. */
static void reflect(square S, int n, uint32_t *seed)
{
    double v[MOST], norm = 0;

    for (int i = 0; i < n; i++) {
        v[i] = number(seed);
        norm += v[i] * v[i];
    }
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < n; i++) {
            double dot = 0;
            for (int k = 0; k < n; k++) dot += v[k] * (turn ? S[i][k] : S[k][i]);
            for (int k = 0; k < n; k++) *(turn ? &S[i][k] : &S[k][i]) -= 2 * dot * v[k] / norm;
        }
}

/* Makes a positive definite matrix with eigenvalues from `size` down to size / condition, evenly spaced in their
 * logarithms. */
static void positive(float *A, int n, double size, double condition, uint32_t seed)
{
    square S = { { 0 } };

    for (int i = 0; i < n; i++) S[i][i] = size * pow(condition, n > 1 ? -(double)i / (n - 1) : 0);
    for (int i = 0; i < 5; i++) reflect(S, n, &seed);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) A[i * n + j] = (float)S[i > j ? i : j][i > j ? j : i];
}

static void multiply(square C, square A, square B, int n)
{
    square result;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            result[i][j] = 0;
            for (int k = 0; k < n; k++) result[i][j] += A[i][k] * B[k][j];
        }
    memcpy(C, result, sizeof result);
}

static double distance(square M, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double one = fabs(M[i][j] - (i == j));
            if (!(one <= most)) most = one;
            if (isnan(most)) return most;
        }
    return most;
}

static void build(square M, const float *A, int n, int side, double padding, double ridge)
{
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++)
            M[i][j] = (i < n && j < n ? (double)A[i * n + j] : i == j ? padding : 0) + (i == j ? ridge : 0);
}

/* Computes the reference root. X gets its upper left n by n corner. */
static void twin(double *X, const float *A, int n, int side, double padding, int p, double epsilon,
                 pd_root_report *report)
{
    square M, H = { { 0 } }, last, T, next;
    double flat[MOST * MOST], sum = 0, z, before;
    bool grew = false;

    for (int i = 0; i < n * n; i++) flat[i] = (double)A[i];
    (void)pd_power_iteration(&report->largest, NULL, flat, n, side, padding);
    build(M, A, n, side, padding, epsilon * fmax(report->largest, 1e-6));
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) sum += M[i][j] * M[i][j];
    z = (1 + p) / (2 * sqrt(sum));
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) M[i][j] *= z;
    for (int i = 0; i < side; i++) H[i][i] = pow(z, 1.0 / p);
    memcpy(last, H, sizeof H);
    report->error = distance(M, side);
    for (report->iterations = 0; report->iterations < 100 && report->error > 1e-6 && !grew; report->iterations++) {
        for (int i = 0; i < side; i++)
            for (int j = 0; j < side; j++) T[i][j] = (i == j ? 1 + 1.0 / p : 0) - M[i][j] / p;
        memcpy(last, H, sizeof H);
        multiply(H, H, T, side);
        memcpy(next, M, sizeof M);
        for (int k = 0; k < p; k++) multiply(next, T, next, side);
        memcpy(M, next, sizeof M);
        before = report->error;
        report->error = distance(M, side);
        grew = !(report->error < 1.2 * before);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) X[i * n + j] = grew ? last[i][j] : H[i][j];
}

static int root(float *X, const float *A, int n, const pd_root_want *want, pd_root_report *report)
{
    float spent[MOST * MOST];

    memcpy(spent, A, (size_t)(n * n) * sizeof *A);
    for (int i = 0; i < n * n; i++) X[i] = NAN;
    return pd_root_newton(pd_mat_dense(X, n, n), pd_mat_dense(spent, n, n), want, report);
}

/* Returns the largest absolute element of X^p (A + ridge I) - I. */
static double residual(const float *X, const float *A, int n, int p, double ridge)
{
    square S, Y;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            S[i][j] = (double)A[i * n + j] + (i == j ? ridge : 0);
            Y[i][j] = (double)X[i * n + j];
        }
    for (int k = 0; k < p; k++) multiply(S, Y, S, n);
    return distance(S, n);
}

TEST(is_the_inverse_root)
{
    static const int orders[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16, 24 };

    for (double condition = 1; condition < 2e6; condition *= 10)
        for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
            pd_root_want want = { .p = orders[k], .epsilon = 1e-8, .padding = 1 };
            pd_root_report report;
            float A[MOST * MOST], X[MOST * MOST];
            double error;
            positive(A, MOST, 3, condition, (uint32_t)(condition + orders[k]));
            assert_int_equal(root(X, A, MOST, &want, &report), PD_OK);
            if (report.error >= 0.1) continue; /* refused by the growth rule */
            error = residual(X, A, MOST, orders[k], want.epsilon * report.largest);
            if (!(error < 2e-6 * orders[k] * sqrt(condition) + 2e-6 * condition))
                fail_msg("p %d, condition %g: %g", orders[k], condition, error);
        }
}

static void agrees_with(const char *what, const float *A, int n, int side, double padding, int p, double epsilon)
{
    pd_root_want want = { .p = p, .epsilon = epsilon, .padded_side = side, .padding = padding };
    pd_root_report report, expected = { 0 };
    float X[MOST * MOST];
    double Y[MOST * MOST], norm = 0, difference = 0;
    int rc = root(X, A, n, &want, &report);

    twin(Y, A, n, side > 0 ? side : n, padding, p, epsilon, &expected);
    if (rc != PD_OK) fail_msg("%s: %s, the twin has an error of %g", what, pd_code_name(rc), expected.error);
    for (int i = 0; i < n * n; i++) {
        norm += Y[i] * Y[i];
        difference += ((double)X[i] - (double)(float)Y[i]) * ((double)X[i] - (double)(float)Y[i]);
    }
    if (report.iterations != expected.iterations)
        fail_msg("%s: %d steps, the twin took %d", what, report.iterations, expected.iterations);
    if (!(fabs(report.largest - expected.largest) <= 1e-10 * expected.largest))
        fail_msg("%s: %.12g %.12g", what, report.largest, expected.largest);
    if (!(fabs(report.error - expected.error) <= 1e-7 * expected.error + 1e-10))
        fail_msg("%s: error %g, the twin's %g", what, report.error, expected.error);
    if (!(difference <= 1e-14 * norm)) fail_msg("%s: off by %g", what, sqrt(difference / norm));
}

TEST(agrees_with_the_twin_at_every_size_and_padding)
{
    static const struct {
        int n, side;
        double padding;
    } shapes[] = {
        { 2, 0, 1 }, { 7, 7, 1 },   { 7, 12, 1 },  { 7, 12, 0 }, { 1, 5, 1 },
        { 1, 2, 0 }, { 16, 24, 1 }, { 23, 24, 0 }, { 24, 0, 0 },
    };
    static const int orders[] = { 1, 2, 3, 4, 6, 8, 24 };

    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++)
            for (int c = 0; c < 3; c++) {
                static const double size[] = { 2, 1e-4, 50 }, condition[] = { 1e3, 30, 1e5 };
                float A[MOST * MOST];
                char what[64];
                snprintf(what, sizeof what, "%d in %d with %g, p %d, case %d", shapes[s].n, shapes[s].side,
                         shapes[s].padding, orders[k], c);
                positive(A, shapes[s].n, size[c], condition[c], (uint32_t)(s + 10 * k));
                agrees_with(what, A, shapes[s].n, shapes[s].side, shapes[s].padding, orders[k], 1e-6);
            }
}

/* A matrix that was quantized is not exactly symmetric. */
TEST(agrees_with_the_twin_on_a_matrix_that_is_not_quite_symmetric)
{
    float A[MOST * MOST];
    uint32_t seed = 5;

    positive(A, 10, 1, 100, 3);
    for (int i = 0; i < 100; i++) A[i] *= (float)(1 + 1e-4 * number(&seed));
    agrees_with("asymmetric", A, 10, 0, 1, 4, 1e-6);
    agrees_with("asymmetric, padded", A, 10, 13, 1, 3, 1e-6);
}

/* For a symmetric matrix, only one half of each product is computed. One bit changed in one element makes the matrix
 * asymmetric, and then whole products are computed. Both roots must agree. */
TEST(halves_of_products_make_the_root_that_whole_ones_make)
{
    static const int sides[] = { 64, 65, 150, 257 }, orders[] = { 1, 4, 6, 3 };

    for (int c = 0; c < 4; c++) {
        int n = sides[c];
        pd_root_want want = { .p = orders[c], .epsilon = 1e-6, .padding = 1, .padded_side = c % 2 ? n + 20 : 0 };
        pd_root_report half, whole;
        size_t bytes = (size_t)(n * n) * sizeof(float);
        float *A = malloc(bytes), *X = malloc(bytes), *Y = malloc(bytes);
        double norm = 0, difference = 0;

        for (int i = 0; i < n; i++)
            for (int j = 0; j <= i; j++)
                A[i * n + j] = A[j * n + i] = (float)(1.0 / (1 + i + j) + (i == j ? 0.01 + 0.02 * i / n : 0));
        assert_int_equal(pd_root_newton(pd_mat_dense(X, n, n), pd_mat_dense(A, n, n), &want, &half), PD_OK);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++) assert_true(X[i * n + j] == X[j * n + i]);
        A[1] = nextafterf(A[1], 1);
        assert_int_equal(pd_root_newton(pd_mat_dense(Y, n, n), pd_mat_dense(A, n, n), &want, &whole), PD_OK);
        for (int i = 0; i < n * n; i++) {
            norm += (double)Y[i] * (double)Y[i];
            difference += ((double)X[i] - (double)Y[i]) * ((double)X[i] - (double)Y[i]);
        }
        assert_true(half.error < 1e-6 && fabs(half.error - whole.error) < 1e-8);
        assert_int_equal(half.iterations, whole.iterations);
        if (!(sqrt(difference / norm) < 1e-6)) fail_msg("%d: off by %g", n, sqrt(difference / norm));
        free(A);
        free(X);
        free(Y);
    }
}

TEST(padding_moves_the_ridge_of_a_small_matrix)
{
    pd_root_want want = { .p = 4, .epsilon = 1e-2, .padding = 1 };
    pd_root_report alone, padded, with_zeros;
    float A[MOST * MOST], X[MOST * MOST];

    positive(A, 6, 1e-4, 10, 1);
    assert_int_equal(root(X, A, 6, &want, &alone), PD_OK);
    want.padded_side = 9;
    assert_int_equal(root(X, A, 6, &want, &padded), PD_OK);
    assert_true(residual(X, A, 6, 4, 1e-2) < 1e-4); /* the largest eigenvalue is the padding's 1, so the ridge is
                                                     * relative to 1 */
    want.padding = 0;
    assert_int_equal(root(X, A, 6, &want, &with_zeros), PD_OK);
    assert_true(alone.largest < 1.1e-4 && with_zeros.largest < 1.1e-4 && fabs(padded.largest - 1) < 1e-3);
}

/* The matrix is nearly of rank one, and its main eigenvector has equal entries. In the first iteration the largest
 * entry of M - I grows by more than upstream's rule allows. */
TEST(the_growth_rule_refuses_a_healthy_matrix_that_is_nearly_of_rank_one)
{
    enum { N = 8 };
    pd_root_want want = { .p = 4, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float A[N * N], X[N * N];

    for (int i = 0; i < N * N; i++) A[i] = 1.0f + (i % (N + 1) == 0 ? 0.006f : 0);
    assert_int_equal(root(X, A, N, &want, &report), PD_OK);
    assert_true(report.error > 0.1 && report.error < 1);
    assert_int_equal(report.iterations, 1);
    agrees_with("nearly of rank one", A, N, 0, 1, 4, 1e-6); /* the result is the root before the refused iteration */
    want.padded_side = 2 * N;                               /* the growth rule accepts the matrix times 1e-3, padded
                                                             * with ones */
    for (int i = 0; i < N * N; i++) A[i] *= 1e-3f;
    assert_int_equal(root(X, A, N, &want, &report), PD_OK);
    assert_true(report.error < 0.1);
}

TEST(a_number_alone_has_its_root_in_closed_form)
{
    pd_root_want want = { .p = 4, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float a = 16, X;

    assert_int_equal(root(&X, &a, 1, &want, &report), PD_OK);
    assert_true(X == (float)pow(16 + 16e-6, -0.25) && report.error == 0 && report.iterations == 0 &&
                report.condition == 1);
    want.padded_side = 3; /* no longer alone */
    assert_int_equal(root(&X, &a, 1, &want, &report), PD_OK);
    assert_true(report.iterations > 0 && fabs((double)X - 0.5) < 1e-5);
    want.padded_side = 1;
    a = -1;
    assert_int_equal(root(&X, &a, 1, &want, &report), PD_OUT_OF_RANGE);
}

TEST(a_zero_matrix_has_the_root_of_its_ridge)
{
    pd_root_want want = { .p = 2, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float A[16] = { 0 }, X[16];

    assert_int_equal(root(X, A, 4, &want, &report), PD_OK);
    for (int i = 0; i < 16; i++) assert_true(fabs((double)X[i] - (i % 5 == 0 ? 1e6 : 0)) < 1);
    assert_true(report.largest == 0 && fabs(report.condition - 1) < 1e-6);
}

TEST(without_a_ridge_a_singular_matrix_never_has_a_good_root)
{
    pd_root_want want = { .p = 2, .epsilon = 0, .padding = 1 };
    pd_root_report report;
    float A[MOST * MOST] = { 0 }, X[MOST * MOST];
    int rc;

    assert_int_equal(root(X, A, 4, &want, &report), PD_OUT_OF_RANGE); /* zeros */
    assert_true(isnan(report.error));
    for (int i = 0; i < 36; i++) A[i] = (float)((i / 6 + 1) * (i % 6 + 1)); /* rank one */
    rc = root(X, A, 6, &want, &report);
    assert_true(rc == PD_OUT_OF_RANGE || report.error > 0.1);
}

TEST(sizes_at_the_ends_of_float32_come_back)
{
    static const double sizes[] = { 1e-44, 1e-38, 1e-30, 1e30, 3e38 };

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int p = 1; p <= 4; p++) {
            pd_root_want want = { .p = p, .epsilon = 1e-6, .padding = 1, .padded_side = p == 3 ? 12 : 0 };
            pd_root_report report;
            float A[MOST * MOST], X[MOST * MOST];
            int rc;
            positive(A, 8, sizes[s], 100, 4);
            rc = root(X, A, 8, &want, &report);
            if (rc == PD_OK && report.error < 0.1)
                assert_true(residual(X, A, 8, p, want.epsilon * fmax(report.largest, 1e-6)) < 0.3);
            assert_true(rc == PD_OK || rc == PD_OUT_OF_RANGE);
        }
}

TEST(what_float32_cannot_hold_is_out_of_range)
{
    pd_root_want want = { .p = 1, .epsilon = 0, .padding = 1 };
    pd_root_report report;
    float A[4] = { 1e-40f, 0, 0, 1e-40f }, X[4];

    assert_int_equal(root(X, A, 2, &want, &report), PD_OUT_OF_RANGE); /* 1e40 */
    assert_true(report.error <= 1e-6);
}

TEST(a_nan_or_an_infinity_ends_it_out_of_range)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (size_t b = 0; b < 3; b++)
        for (int at = 0; at < 9; at++) {
            pd_root_want want = { .p = 4, .epsilon = 1e-6, .padding = 1, .padded_side = at % 2 ? 5 : 0 };
            pd_root_report report;
            float A[9] = { 1, 0, 0, 0, 1, 0, 0, 0, 1 }, X[9];
            A[at] = bad[b];
            assert_int_equal(root(X, A, 3, &want, &report), PD_OUT_OF_RANGE);
            assert_true(isnan(report.error));
        }
}

TEST(an_indefinite_matrix_has_an_error_to_refuse)
{
    pd_root_want want = { .p = 2, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float A[9] = { 1, 0, 0, 0, -0.5f, 0, 0, 0, 2 }, X[9];
    int rc = root(X, A, 3, &want, &report);

    assert_true(rc == PD_OUT_OF_RANGE || report.error > 0.1);
}

TEST(the_condition_is_estimated_with_the_ridge)
{
    for (double condition = 1; condition < 1e9; condition *= 100)
        for (int p = 2; p <= 8; p *= 2) {
            pd_root_want want = { .p = p, .epsilon = 1e-6, .padding = 1, .padded_side = p == 8 ? MOST + 2 : 0 };
            pd_root_report report;
            float A[MOST * MOST], X[MOST * MOST];
            double ridge, expected;
            positive(A, MOST, 1, condition, 8);
            assert_int_equal(root(X, A, MOST, &want, &report), PD_OK);
            ridge = want.epsilon * report.largest;
            expected = (1 + ridge) / (1 / condition + ridge);
            if (report.error < 0.1 && !(report.condition > 0.5 * expected && report.condition < 1.2 * expected))
                fail_msg("%g for a condition of %g", report.condition, expected);
        }
}

TEST(rows_may_have_gaps)
{
    enum { N = 5, STRIDE = 8 };
    pd_root_want want = { .p = 4, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float A[N * N], X[N * N], gaps[N * STRIDE], Y[N * STRIDE];

    positive(A, N, 1, 10, 6);
    for (int i = 0; i < N * STRIDE; i++) gaps[i] = Y[i] = 77;
    for (int i = 0; i < N; i++) memcpy(gaps + i * STRIDE, A + i * N, N * sizeof *A);
    assert_int_equal(root(X, A, N, &want, &report), PD_OK);
    assert_int_equal(pd_root_newton((pd_mat){ Y, N, N, STRIDE }, (pd_mat){ gaps, N, N, STRIDE }, &want, &report),
                     PD_OK);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < STRIDE; j++) assert_true(Y[i * STRIDE + j] == (j < N ? X[i * N + j] : 77));
}

TEST(out_of_memory_is_told)
{
    pd_root_want want = { .p = 6, .epsilon = 1e-6, .padding = 1 };
    pd_root_report report;
    float A[25], X[25];

    positive(A, 5, 1, 10, 7);
    for (int64_t n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = root(X, A, 5, &want, &report);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_true(n < 10);
    }
}
