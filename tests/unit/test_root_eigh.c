/* Tests inverse roots by eigendecomposition. */
#include <float.h>

#include "test.h"
#include "root.h"
#include "root_types.h"
#include "roots.h"

typedef int root_method(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

static root_method *const methods[] = { pd_root_eigh, pd_root_eigh64 };
static const double eps_of[] = { FLT_EPSILON, DBL_EPSILON };
enum { METHODS = 2 };

/* Returns the root of a copy of A. The method must succeed. */
static pd_mat root_of(root_method *method, pd_mat A, int p, double epsilon, pd_root_report *report)
{
    pd_root_want want = { .p = p, .epsilon = epsilon };
    pd_mat X = roots_matrix(A.rows), C = roots_copy(A);

    assert_int_equal(method(X, C, &want, report), PD_OK);
    free(C.at);
    return X;
}

/* Checks that each method finds the root of a matrix with these eigenvalues, to `tolerance`. */
static void roots_well(int64_t n, const double *values, int p, double epsilon, double tolerance)
{
    pd_mat A = roots_with(values, n, 7);

    for (int m = 0; m < METHODS; m++) {
        pd_root_report report;
        pd_mat X = root_of(methods[m], A, p, epsilon, &report);
        double error = roots_error(X, A, p, epsilon);
        if (!(error <= tolerance)) fail_msg("method %d, n %d, p %d: error %g", m, (int)n, p, error);
        free(X.at);
    }
    free(A.at);
}

TEST(takes_any_order_and_size)
{
    static const int64_t sizes[] = { 1, 2, 3, 17, 64 };
    double values[64];

    for (int i = 0; i < 64; i++) values[i] = pow(10, -3.0 * i / 64);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int p = 1; p <= 9; p++) roots_well(sizes[s], values, p, 1e-6, 2e-4);
}

TEST(root_times_matrix_is_the_identity)
{
    double values[32], residual;
    pd_root_report report;

    for (int i = 0; i < 32; i++) values[i] = 1 + i;
    for (int p = 1; p <= 6; p++) {
        pd_mat A = roots_with(values, 32, 3), X = root_of(pd_root_eigh, A, p, 0, &report);
        residual = roots_residual(X, A, p);
        if (!(residual < 1e-4)) fail_msg("p %d: |X^p A - I| = %g", p, residual);
        free(A.at);
        free(X.at);
    }
}

TEST(is_exactly_symmetric)
{
    double values[17];
    pd_root_report report;

    for (int i = 0; i < 17; i++) values[i] = exp(-i);
    for (int m = 0; m < METHODS; m++) {
        pd_mat A = roots_with(values, 17, 5), X = root_of(methods[m], A, 4, 1e-6, &report);
        for (int i = 0; i < 17; i++)
            for (int j = 0; j < i; j++) assert_true(X.at[i * 17 + j] == X.at[j * 17 + i]);
        free(A.at);
        free(X.at);
    }
}

TEST(takes_diagonal_matrices)
{
    pd_root_report report;

    for (int m = 0; m < METHODS; m++) {
        pd_mat A = roots_matrix(3), X;
        A.at[0] = 16, A.at[4] = 1, A.at[8] = 81;
        X = root_of(methods[m], A, 4, 0, &report);
        for (int i = 0; i < 9; i++) {
            double expected = i == 0 ? 0.5 : i == 4 ? 1 : i == 8 ? 1.0 / 3 : 0;
            assert_true(fabs((double)X.at[i] - expected) < 1e-6);
        }
        assert_true(fabs(report.condition - 81) < 1e-3);
        assert_true(fabs(report.largest - 81) < 1e-4);
        free(A.at);
        free(X.at);
    }
}

TEST(takes_repeated_eigenvalues)
{
    double values[20];

    for (int i = 0; i < 20; i++) values[i] = i < 10 ? 2 : 0.01;
    roots_well(20, values, 4, 1e-6, 1e-4);
}

TEST(a_zero_matrix_has_the_root_of_its_ridge)
{
    pd_root_report report;

    for (int m = 0; m < METHODS; m++) {
        pd_mat A = roots_matrix(5), X = root_of(methods[m], A, 2, 1e-2, &report);
        for (int i = 0; i < 25; i++) assert_true(fabs((double)X.at[i] - (i % 6 == 0 ? 1e4 : 0)) < 1e-2);
        assert_true(report.error < 1e-6);
        assert_true(report.largest == 0);
        free(A.at);
        free(X.at);
    }
}

/* An eigenvalue that rounding made negative counts as zero. */
TEST(a_negative_eigenvalue_counts_as_zero)
{
    pd_root_report report;

    for (int m = 0; m < METHODS; m++) {
        pd_mat A = roots_matrix(2), X;
        A.at[0] = 1, A.at[3] = -1e-4f;
        X = root_of(methods[m], A, 1, 1e-4, &report);
        assert_true(fabs((double)X.at[3] - 1e4) < 1);
        free(A.at);
        free(X.at);
    }
}

static void refuses(pd_mat A, double epsilon)
{
    for (int m = 0; m < METHODS; m++) {
        pd_root_want want = { .p = 4, .epsilon = epsilon };
        pd_root_report report;
        pd_mat X = roots_matrix(A.rows), C = roots_copy(A);
        assert_int_equal(methods[m](X, C, &want, &report), PD_OUT_OF_RANGE);
        assert_true(isinf(report.error));
        free(C.at);
        free(X.at);
    }
    free(A.at);
}

TEST(refuses_a_singular_matrix_without_a_ridge)
{
    static const double values[3] = { 1, 0.5, 0 };
    pd_mat diagonal = roots_matrix(3);

    diagonal.at[0] = diagonal.at[4] = 1;
    refuses(diagonal, 0);
    refuses(roots_matrix(4), 0);
    for (int m = 0; m < METHODS;
         m++) { /* a singular matrix, rotated and made slightly negative: rounding could turn its zero eigenvalue
                 * positive */
        pd_root_want want = { .p = 2 };
        pd_root_report report;
        pd_mat A = roots_with(values, 3, 1), X = roots_matrix(3);
        for (int i = 0; i < 3; i++) A.at[i * 4] -= 3e-8f;
        assert_int_equal(methods[m](X, A, &want, &report), PD_OUT_OF_RANGE);
        free(A.at);
        free(X.at);
    }
}

TEST(refuses_what_is_not_finite)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        pd_mat A = roots_matrix(4);
        for (int i = 0; i < 4; i++) A.at[i * 5] = 1;
        A.at[1] = A.at[4] = bad[b];
        refuses(A, 1e-6);
    }
}

TEST(refuses_a_root_beyond_float32)
{
    pd_root_report report;
    pd_root_want want = { .p = 1 };
    pd_mat A = roots_matrix(2), X = roots_matrix(2);

    A.at[0] = A.at[3] = 1e-39f;
    assert_int_equal(pd_root_eigh64(X, A, &want, &report), PD_OUT_OF_RANGE);
    free(A.at);
    free(X.at);
}

TEST(scales_as_powers_do)
{
    static const double scales[] = { 1e-30, 1e30 };
    double values[17];

    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int i = 0; i < 17; i++) values[i] = scales[s] * (1 + i);
        for (int p = 2; p <= 4; p++) {
            roots_well(17, values, p, 0, 1e-5);
            roots_well(17, values, p, 1e-6, 1e-5);
        }
    }
}

TEST(leaves_the_gaps_of_a_strided_matrix)
{
    double values[5] = { 5, 4, 3, 2, 1 };
    pd_mat A = roots_with(values, 5, 9), wide = roots_matrix(8), X = roots_matrix(8), expected;
    pd_root_report report;
    pd_root_want want = { .p = 3, .epsilon = 1e-6 };

    for (int m = 0; m < METHODS; m++) {
        expected = root_of(methods[m], A, 3, 1e-6, &report);
        for (int i = 0; i < 64; i++) wide.at[i] = NAN, X.at[i] = -1;
        for (int i = 0; i < 5; i++) memcpy(wide.at + i * 8, A.at + i * 5, 5 * sizeof *A.at);
        assert_int_equal(methods[m]((pd_mat){ X.at, 5, 5, 8 }, (pd_mat){ wide.at, 5, 5, 8 }, &want, &report), PD_OK);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++) assert_true(X.at[i * 8 + j] == (i < 5 && j < 5 ? expected.at[i * 5 + j] : -1));
        free(expected.at);
    }
    free(A.at);
    free(wide.at);
    free(X.at);
}

/* With this ridge, rounding of the matrix matters little. The measured error is then that of the method: small in
 * float64 and larger in float32. */
TEST(measures_its_error)
{
    double values[64];
    pd_root_report report[METHODS];
    pd_mat A;

    for (int i = 0; i < 64; i++) values[i] = pow(10, -6.0 * i / 63);
    A = roots_with(values, 64, 2);
    for (int m = 0; m < METHODS; m++) {
        pd_mat X = root_of(methods[m], A, 4, 1e-6, &report[m]);
        assert_true(report[m].error > 0 && report[m].error < 1e4 * 1e6 * eps_of[m] + 1e-3);
        assert_true(report[m].condition > 3e5 && report[m].condition < 2e6);
        assert_true(report[m].decomposed && report[m].tries == 1 && report[m].iterations == 0);
        free(X.at);
    }
    assert_true(report[1].error < report[0].error);
    free(A.at);
}

/* The measured error of a root that was changed is not small. */
TEST(the_measure_sees_a_wrong_matrix)
{
    double values[16], error;
    pd_root_report report;
    pd_mat A, X;

    for (int i = 0; i < 16; i++) values[i] = 1 + i;
    for (int p = 1; p <= 5; p++) {
        A = roots_with(values, 16, 4), X = root_of(pd_root_eigh64, A, p, 0, &report);
        assert_true(report.error < 1e-5);
        X.at[0] *= 1.1f;
        error = roots_checked(X, A, 0, p);
        if (!(error > 1e-3)) fail_msg("p %d: %g", p, error);
        free(A.at);
        free(X.at);
    }
}

TEST(no_allocation_may_fail_unnoticed)
{
    double values[6] = { 6, 5, 4, 3, 2, 1 };
    pd_root_want want = { .p = 4, .epsilon = 1e-6 };
    pd_root_report report;
    pd_mat A = roots_with(values, 6, 1), X = roots_matrix(6);

    for (int m = 0; m < METHODS; m++) {
        int64_t n;
        for (n = 0;; n++) {
            int rc;
            oom_arm(n);
            rc = methods[m](X, A, &want, &report);
            if (!oom_disarm()) {
                assert_int_equal(rc, PD_OK);
                break;
            }
            assert_int_equal(rc, PD_NO_MEMORY);
        }
        assert_true(n >= 3);
    }
    free(A.at);
    free(X.at);
}
