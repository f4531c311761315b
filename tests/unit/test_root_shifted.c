/* Tests inverse roots of matrices with an absolute ridge. */
#include <float.h>

#include "test.h"
#include "root.h"
#include "root_types.h"
#include "roots.h"

/* Roots with an absolute ridge. If the smallest eigenvalue is negative, all eigenvalues are first lifted so that it
 * becomes zero. */

static const pd_root_method methods[] = { PD_ROOT_EIGH, PD_ROOT_EIGH64, PD_ROOT_TRACKED };
enum { METHODS = 3 };

static pd_root_want wanting(pd_root_method method, double exponent, double epsilon)
{
    return (pd_root_want){
        .method = method, .ridge = PD_RIDGE_SHIFTED, .exponent = exponent, .epsilon = epsilon, .most_error = INFINITY
    };
}

/* Returns the root of A from pd_root, which must succeed. The eigenbasis Q is dropped. */
static pd_mat root_of(pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_mat X = roots_matrix(A.rows), Q = roots_matrix(A.rows);

    assert_int_equal(pd_root(X, Q, A, want, report), PD_OK);
    free(Q.at);
    return X;
}

/* Makes a matrix with eigenvalues from 1 down to 1 / condition, evenly spaced in their logarithms. */
static pd_mat matrix_of(int64_t n, double condition, uint32_t seed)
{
    double *values = calloc((size_t)n, sizeof *values);
    pd_mat A;

    for (int64_t i = 0; i < n; i++) values[i] = pow(condition, n > 1 ? -(double)i / (double)(n - 1) : 0);
    A = roots_with(values, n, seed);
    free(values);
    return A;
}

TEST(any_exponent_gives_that_power_of_the_inverse)
{
    static const double exponents[] = { 1, 0.5, 1.0 / 3, 0.25, 1.82 / 4, 3.0 / 8, 0.91, 2, 0, -0.5, -1 };
    pd_mat A = matrix_of(24, 100, 3);

    for (int m = 0; m < METHODS; m++)
        for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
            pd_root_want want = wanting(methods[m], exponents[e], 1e-3);
            pd_root_report report;
            pd_mat X = root_of(A, &want, &report);
            double error = roots_shifted_error(X, A, exponents[e], 1e-3);
            if (!(error < 3e-5)) fail_msg("method %d, exponent %g: error %g", m, exponents[e], error);
            assert_true(report.error < 1e-3);
            free(X.at);
        }
    free(A.at);
}

/* Sizes on both sides of the limit up to which eigh decomposes in float64. */
TEST(matrices_of_any_size_have_roots)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 64, 127, 128, 129, 200 };

    for (int m = 0; m < METHODS; m++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            pd_root_want want = wanting(methods[m], 0.25, 1e-12);
            pd_root_report report;
            pd_mat A = matrix_of(sizes[s], 30, 5), X = root_of(A, &want, &report);
            double residual = roots_residual(X, A, 4);
            if (!(residual < 3e-4)) fail_msg("method %d, n %d: %g", m, (int)sizes[s], residual);
            free(A.at);
            free(X.at);
        }
}

/* The ridge is not multiplied by the largest eigenvalue. */
TEST(the_ridge_is_absolute)
{
    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 0.5, 0.5);
        pd_root_report report;
        pd_mat A = matrix_of(9, 10, 1), X;
        for (int i = 0; i < 81; i++) A.at[i] *= 1000;
        X = root_of(A, &want, &report);
        assert_true(roots_shifted_error(X, A, 0.5, 0.5) < 1e-5);
        assert_true(fabs(report.largest - 1000) < 1 && fabs(report.condition - 1000.5 / 100.5) < 0.01);
        free(A.at);
        free(X.at);
    }
}

TEST(a_negative_least_eigenvalue_lifts_all_of_them)
{
    static const double values[] = { 2, 1, 0.7, 0.5, 0.1, -0.3 };

    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 0.25, 1e-2);
        pd_root_report report;
        pd_mat A = roots_with(values, 6, 2), X = root_of(A, &want, &report);
        assert_true(roots_shifted_error(X, A, 0.25, 1e-2) < 1e-5);
        assert_true(fabs(report.condition - 2.31 / 0.01) < 0.1 && report.error < 1e-4);
        free(A.at);
        free(X.at);
    }
}

TEST(a_positive_least_eigenvalue_lifts_nothing)
{
    static const double values[] = { 2, 1, 0.5 };

    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 1, 0);
        pd_root_report report;
        pd_mat A = roots_with(values, 3, 2), X = root_of(A, &want, &report);
        assert_true(roots_residual(X, A, 1) < 1e-5);
        free(A.at);
        free(X.at);
    }
}

/* Reordering the rows and columns of A and changing signs, as a signed permutation P does, does the same to the
 * root: X(P A P') = P X(A) P'. */
TEST(turning_the_matrix_turns_its_root)
{
    enum { N = 12 };

    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 0.375, 1e-4);
        pd_root_report report;
        pd_mat A = matrix_of(N, 1000, 8), B = roots_matrix(N), X = root_of(A, &want, &report), Y;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                B.at[(5 * i + 1) % N * N + (5 * j + 1) % N] = ((i ^ j) & 1 ? -1.0f : 1.0f) * A.at[i * N + j];
        Y = root_of(B, &want, &report);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double turned = ((i ^ j) & 1 ? -1 : 1) * (double)X.at[i * N + j];
                assert_true(fabs((double)Y.at[(5 * i + 1) % N * N + (5 * j + 1) % N] - turned) < 1e-3);
            }
        free(A.at), free(B.at), free(X.at), free(Y.at);
    }
}

/* In the null space of a singular matrix, the root is the ridge to the power -1/2, up to the rounding of the
 * eigenvalues. BLAS in float32 finds an eigenvalue with an error of about d = FLT_EPSILON * 3, where 3 is the largest
 * eigenvalue, and the root's relative error is d / (2 * ridge). Kernels add in different orders: the test allows twice
 * that error. */
TEST(a_singular_matrix_has_a_root)
{
    static const double values[] = { 3, 2, 1, 0, 0, 0 };
    const double ridge = 1e-3, allowed = 2 * (double)FLT_EPSILON * 3 / (2 * ridge);

    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 0.5, ridge);
        pd_root_report report;
        pd_mat A = roots_with(values, 6, 4), X = root_of(A, &want, &report);
        assert_true(roots_shifted_error(X, A, 0.5, ridge) < allowed);
        free(A.at);
        free(X.at);
    }
}

TEST(the_error_of_any_exponent_tells_what_is_wrong)
{
    static const double exponents[] = { 0.25, 0.455 };

    for (int m = 0; m < METHODS; m++)
        for (int e = 0; e < 2; e++) {
            pd_root_want want = wanting(methods[m], exponents[e], 1e-6);
            pd_root_report report;
            pd_mat A = matrix_of(150, 100, 4), X = root_of(A, &want, &report);
            assert_true(report.error > 0 && report.error < 1e-4);
            A.at[1] += 0.5f; /* not symmetric: a decomposition reads only one half of A */
            free(X.at);
            X = root_of(A, &want, &report);
            assert_true(report.error > 1e-4);
            free(A.at);
            free(X.at);
        }
}

/* Every method takes a diagonal matrix element by element. A negative element is not lifted: -0.5 with ridge 1 gives
 * (-0.5 + 1)^-e. */
TEST(a_diagonal_matrix_is_taken_element_by_element)
{
    static const pd_root_method every[] = { PD_ROOT_NEWTON,  PD_ROOT_EIGH,    PD_ROOT_EIGH64,
                                            PD_ROOT_TRACKED, PD_ROOT_COUPLED, PD_ROOT_HIGHER_ORDER };
    static const float diagonal[] = { 4, 0, -0.5f, 100 };

    for (size_t m = 0; m < sizeof every / sizeof *every; m++) {
        pd_root_want want = wanting(every[m], 0.75, 1);
        pd_root_report report;
        pd_mat A = roots_matrix(4), X;
        want.p = 4, want.q = every[m] == PD_ROOT_COUPLED ? 1 : 3, want.order = 2, want.iterations = 100;
        for (int i = 0; i < 4; i++) A.at[i * 5] = diagonal[i];
        X = root_of(A, &want, &report);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                double expected =
                    i == j ? pow((double)diagonal[i] + 1, every[m] == PD_ROOT_COUPLED ? -0.25 : -0.75) : 0;
                assert_true(fabs((double)X.at[i * 4 + j] - expected) <= 1e-7 * expected);
            }
        assert_true(report.error == 0 && report.largest == 100 && fabs(report.condition - 101 / 0.5) < 1e-9);
        assert_false(report.decomposed);
        free(A.at);
        free(X.at);
    }
}

TEST(one_element_is_taken_as_it_is)
{
    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 1.82 / 2, 1e-6);
        pd_root_report report;
        float a = 3e-5f, x = 0, q = 0;
        assert_int_equal(
            pd_root(pd_mat_dense(&x, 1, 1), pd_mat_dense(&q, 1, 1), pd_mat_dense(&a, 1, 1), &want, &report), PD_OK);
        assert_true(fabs((double)x / pow((double)a + 1e-6, -0.91) - 1) < 1e-7);
    }
}

/* With one element off the diagonal, however small, the matrix is decomposed and its negative eigenvalue is lifted. */
TEST(what_is_nearly_diagonal_is_decomposed)
{
    for (int above = 0; above < 2; above++) {
        pd_root_want want = wanting(PD_ROOT_EIGH64, 0.5, 1e-2);
        pd_root_report report;
        pd_mat A = roots_matrix(2), X;
        A.at[0] = 1, A.at[3] = -0.5f;
        A.at[above ? 1 : 2] = 1e-30f;
        X = root_of(A, &want, &report);
        assert_true(fabs((double)X.at[3] - 10) < 1e-4 && report.decomposed);
        free(A.at);
        free(X.at);
    }
}

TEST(a_negative_element_below_the_ridge_has_no_root)
{
    pd_root_want want = wanting(PD_ROOT_EIGH, 0.25, 1e-2);
    pd_root_report report;
    pd_mat A = roots_matrix(2), X = roots_matrix(2), none = { 0 };

    A.at[0] = 1, A.at[3] = -0.5f;
    want.retries = 3;
    assert_int_equal(pd_root(X, none, A, &want, &report), PD_OUT_OF_RANGE);
    assert_true(isinf(report.error) && report.tries == 1);
    free(A.at);
    free(X.at);
}

TEST(what_is_not_finite_is_refused)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int m = 0; m < METHODS; m++)
        for (int b = 0; b < 3; b++)
            for (int at = 0; at < 2; at++) {
                pd_root_want want = wanting(methods[m], 0.25, 1e-2);
                pd_root_report report;
                pd_mat A = matrix_of(5, 10, 1), X = roots_matrix(5), Q = roots_matrix(5);
                A.at[at * 6] = bad[b];
                want.retries = 2;
                assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OUT_OF_RANGE);
                assert_true(!isfinite(report.error));
                free(A.at), free(X.at), free(Q.at);
            }
}

/* Without a ridge, the lifted eigenvalue is zero, which has no inverse. Retries do not help: they multiply the
 * ridge, which is zero. */
TEST(without_a_ridge_a_negative_matrix_is_refused)
{
    static const double values[] = { 1, 0.5, -1e-3 };

    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = wanting(methods[m], 0.25, 0);
        pd_root_report report;
        pd_mat A = roots_with(values, 3, 2), X = roots_matrix(3), Q = roots_matrix(3);
        want.retries = 2;
        assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OUT_OF_RANGE);
        assert_int_equal(report.tries, 3);
        assert_false(isfinite(report.error));
        free(A.at), free(X.at), free(Q.at);
    }
}

TEST(the_first_retry_is_in_float64_with_the_same_ridge)
{
    pd_root_want want = wanting(PD_ROOT_EIGH, 0.25, 1e-7), wide = wanting(PD_ROOT_EIGH64, 0.25, 1e-7);
    pd_root_report report, expected;
    pd_mat A = matrix_of(140, 1e4, 6), X, Y;

    Y = root_of(A, &wide, &expected);
    want.most_error = 2 * expected.error;
    want.retries = 3;
    X = root_of(A, &want, &report);
    assert_memory_equal(X.at, Y.at, 140 * 140 * sizeof *X.at);
    assert_true(report.error == expected.error && report.tries == 2);
    free(A.at), free(X.at), free(Y.at);
}

TEST(no_allocation_may_fail_unnoticed)
{
    static const double exponents[] = { 0.25, 0.455 };

    for (int m = 0; m < METHODS; m++)
        for (int e = 0; e < 2; e++)
            for (int64_t n = 0;; n++) {
                pd_root_want want = wanting(methods[m], exponents[e], 1e-4);
                pd_root_report report;
                pd_mat A = matrix_of(130, 10, 1), X = roots_matrix(130), Q = roots_matrix(130);
                bool failed;
                int rc;
                oom_arm(n);
                rc = pd_root(X, Q, A, &want, &report);
                failed = oom_disarm();
                free(A.at), free(X.at), free(Q.at);
                assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
                if (!failed) break;
                assert_true(n < 20);
            }
}

/* The matrix changes a little each time. The tracked root is as exact as that of a new decomposition, also when the
 * smallest eigenvalue is negative. */
TEST(a_tracked_root_is_the_decomposed_one)
{
    enum { N = 40, MOVES = 8 };
    static const double lowest[] = { 0.01, -0.02, -0.02 }, scales[] = { 1, 1, 4096 };

    for (int l = 0; l < 3; l++) {
        pd_root_want want = wanting(PD_ROOT_TRACKED, 0.25, 1e-2 * scales[l]);
        pd_mat Q = roots_matrix(N), X = roots_matrix(N), A;
        double values[N];
        int tracked = 0;
        uint32_t seed = 3;
        for (int i = 0; i < N; i++) values[i] = scales[l] * (i == 0 ? lowest[l] : 0.05 * i);
        A = roots_with(values, N, 2);
        for (int k = 0; k < MOVES; k++) {
            pd_root_report report;
            double error;
            assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OK);
            error = fmax(roots_shifted_error(X, A, 0.25, want.epsilon), 1e-2 * report.error);
            if (!(error < 2e-5)) fail_msg("move %d from least %g: %g", k, lowest[l], error);
            tracked += !report.decomposed;
            for (int i = 0; i < N; i++)
                for (int j = 0; j <= i; j++) {
                    A.at[i * N + j] += (float)(1e-6 * scales[l] * roots_number(&seed));
                    A.at[j * N + i] = A.at[i * N + j];
                }
        }
        assert_int_equal(tracked, MOVES - 1);
        free(Q.at), free(X.at), free(A.at);
    }
}

TEST(exponents_that_no_whole_root_has_are_decomposed_each_time)
{
    pd_root_want want = wanting(PD_ROOT_TRACKED, 0.455, 1e-3);
    pd_mat Q = roots_matrix(20), X = roots_matrix(20), A = matrix_of(20, 10, 3);

    for (int k = 0; k < 2; k++) {
        pd_root_report report;
        assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OK);
        assert_true(report.decomposed && roots_shifted_error(X, A, 0.455, 1e-3) < 1e-5);
    }
    free(Q.at), free(X.at), free(A.at);
}

/* A small eigenvalue of a float64 matrix counts: 1e-10 beside 2. In float32 it would be lost. */
TEST(a_wide_matrix_keeps_what_float32_would_lose)
{
    double A[4] = { 1 + 5e-11, 1 - 5e-11, 1 - 5e-11, 1 + 5e-11 }; /* eigenvalues 2 and 1e-10 */
    pd_root_want want = wanting(PD_ROOT_EIGH64, 0.25, 1e-12);
    pd_root_report report;
    pd_mat X = roots_matrix(2);

    assert_int_equal(pd_root_wide(X, A, &want, &report), PD_OK);
    assert_true(fabs((double)(X.at[0] - X.at[1]) / pow(1.01e-10, -0.25) - 1) < 1e-5);
    assert_true(report.error < 1e-3 && report.decomposed && fabs(report.largest - 2) < 1e-9);
    free(X.at);
}

TEST(a_wide_matrix_may_lie_beyond_float32)
{
    double A[4] = { 2e60, 1e60, 1e60, 2e60 }; /* eigenvalues 3e60 and 1e60 */

    for (int e = 0; e < 2; e++) {
        double exponent = e == 0 ? 0.25 : 0.3;
        pd_root_want want = wanting(PD_ROOT_EIGH64, exponent, 1e-12);
        pd_root_report report;
        pd_mat X = roots_matrix(2);
        assert_int_equal(pd_root_wide(X, A, &want, &report), PD_OK);
        assert_true(fabs((double)(X.at[0] + X.at[1]) / pow(3e60, -exponent) - 1) < 1e-6);
        assert_true(fabs((double)(X.at[0] - X.at[1]) / pow(1e60, -exponent) - 1) < 1e-6);
        assert_true(report.error < 1e-5);
        free(X.at);
    }
}

TEST(a_wide_diagonal_is_taken_element_by_element)
{
    double A[4] = { 1e-9, 0, 0, -0.25 };
    pd_root_want want = wanting(PD_ROOT_EIGH64, 0.5, 0.5);
    pd_root_report report;
    pd_mat X = roots_matrix(2);

    assert_int_equal(pd_root_wide(X, A, &want, &report), PD_OK);
    assert_true(fabs((double)X.at[0] / pow(0.5, -0.5) - 1) < 1e-7 && X.at[1] == 0 && X.at[2] == 0 && X.at[3] == 2);
    assert_false(report.decomposed);
    free(X.at);
}

TEST(a_wide_matrix_that_is_not_finite_is_refused)
{
    pd_root_want want = wanting(PD_ROOT_EIGH64, 0.5, 0.5);
    pd_root_report report;
    pd_mat X = roots_matrix(3);

    for (int i = 0; i < 9; i++) {
        double A[9] = { 2, 1, 0, 1, 2, 1, 0, 1, 2 };
        A[i] = i % 2 ? NAN : INFINITY;
        assert_int_equal(pd_root_wide(X, A, &want, &report), PD_OUT_OF_RANGE);
        assert_true(isinf(report.error));
    }
    free(X.at);
}

/* Returns the largest |element| of A X A - A, which is 0 for X = the pseudo-inverse. */
static double pseudo_error(pd_mat A, pd_mat X)
{
    int64_t n = A.rows;
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = -(double)A.at[i * n + j];
            for (int64_t a = 0; a < n; a++)
                for (int64_t b = 0; b < n; b++)
                    sum += (double)A.at[i * n + a] * (double)X.at[a * n + b] * (double)A.at[b * n + j];
            most = fmax(most, fabs(sum));
        }
    return most;
}

static double frobenius(pd_mat X)
{
    double sum = 0;

    for (int64_t i = 0; i < X.rows * X.rows; i++) sum += (double)X.at[i] * (double)X.at[i];
    return sqrt(sum);
}

/* Eigenvalues of 3, 2, 1 and five of 0, in float32 and, as diagonal matrix, exactly. */
TEST(a_pseudo_inverse_leaves_the_null_space_out)
{
    double values[8] = { 3, 2, 1 };
    static const pd_root_method by[] = { PD_ROOT_EIGH, PD_ROOT_EIGH64, PD_ROOT_QR };

    for (size_t m = 0; m < sizeof by / sizeof *by; m++)
        for (int diagonal = 0; diagonal < 2; diagonal++) {
            pd_mat A = roots_with(values, 8, 3), X = roots_matrix(8), Q = roots_matrix(8);
            pd_root_want want = wanting(by[m], 1, 0);
            pd_root_report report;
            want.pseudo = true, want.rank_rtol = 1e-5, want.iterations = 200;
            for (int i = 0; diagonal == 1 && i < 64; i++) A.at[i] = i % 9 == 0 ? (float)values[i / 9] : 0;
            for (int i = 0; i < 8; i++) Q.at[i * 9] = 1;
            assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OK);
            assert_true(pseudo_error(A, X) < 1e-5);
            assert_true(fabs(frobenius(X) - sqrt(1 + 1.0 / 4 + 1.0 / 9)) < 1e-5);
            want.rank_atol = 1.5;
            assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OK);
            assert_true(fabs(frobenius(X) - sqrt(1.0 / 4 + 1.0 / 9)) < 1e-5);
            free(A.at), free(X.at), free(Q.at);
        }
}

TEST(qr_iterations_reach_the_root_of_a_decomposition)
{
    pd_mat A = matrix_of(24, 50, 7), X = roots_matrix(24), Q = roots_matrix(24);
    pd_root_want want = wanting(PD_ROOT_QR, 0.25, 1e-3);
    pd_root_report report;

    for (int i = 0; i < 24; i++) Q.at[i * 25] = 1;
    want.iterations = 400;
    assert_int_equal(pd_root(X, Q, A, &want, &report), PD_OK);
    assert_true(roots_shifted_error(X, A, 0.25, 1e-3) < 1e-3 && report.error < 1e-3);
    free(A.at), free(X.at), free(Q.at);
}
