/* Tests inverse roots by coupled iterations, as Meta's Shampoo takes them. */
#include "test.h"
#include "root.h"
#include "root_types.h"
#include "roots.h"

/* The coupled iterations in float32, each called directly and through pd_root. */

typedef int root_method(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

static pd_root_want newton(int p, double epsilon)
{
    return (pd_root_want){ .method = PD_ROOT_COUPLED,
                           .ridge = PD_RIDGE_SHIFTED,
                           .p = p,
                           .epsilon = epsilon,
                           .tolerance = 1e-6,
                           .iterations = 100,
                           .most_error = 0.1 };
}

static pd_root_want of_order(int order, int p, int q, double epsilon)
{
    pd_root_want want = newton(p, epsilon);

    want.method = PD_ROOT_HIGHER_ORDER;
    want.order = order, want.q = q;
    return want;
}

static root_method *method_of(const pd_root_want *want)
{
    return want->method == PD_ROOT_COUPLED ? pd_root_coupled : pd_root_higher_order;
}

/* Returns the root of A. The method must succeed. */
static pd_mat root_of(pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_mat X = roots_matrix(A.rows);
    int rc = method_of(want)(X, A, want, report);

    if (rc != PD_OK)
        fail_msg("n %d, p %d, order %d: code %d, error %g", (int)A.rows, want->p, want->order, rc, report->error);
    return X;
}

/* Makes a matrix with eigenvalues from `scale` down to scale / condition, evenly spaced in their logarithms. */
static pd_mat matrix_of(int64_t n, double scale, double condition, uint32_t seed)
{
    double *values = calloc((size_t)n, sizeof *values);
    pd_mat A;

    for (int64_t i = 0; i < n; i++) values[i] = scale * pow(condition, n > 1 ? -(double)i / (double)(n - 1) : 0);
    A = roots_with(values, n, seed);
    free(values);
    return A;
}

TEST(newton_takes_any_root)
{
    pd_mat A = matrix_of(12, 3, 100, 5);

    for (int p = 1; p <= 9; p++) {
        pd_root_want want = newton(p, 1e-3);
        pd_root_report report;
        pd_mat X = root_of(A, &want, &report);
        double error = roots_shifted_error(X, A, 1.0 / p, 1e-3);
        if (!(error < 1e-5)) fail_msg("p %d: %g", p, error);
        assert_true(report.error <= 1e-6 && report.ended == PD_ENDED_CONVERGED && report.iterations > 3 &&
                    report.iterations < 20);
        assert_true(report.condition > 60 && report.condition < 120);
        free(X.at);
    }
    free(A.at);
}

TEST(matrices_of_any_size_have_roots)
{
    static const int64_t sizes[] = { 1, 2, 3, 8, 31, 32, 33, 100, 200 };

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int order = 0; order <= 3; order += order == 0 ? 2 : 1) {
            pd_root_want want = order == 0 ? newton(4, 1e-6) : of_order(order, 4, 1, 1e-6);
            pd_root_report report;
            pd_mat A = matrix_of(sizes[s], 1, 30, 3), X = root_of(A, &want, &report);
            double residual = roots_residual(X, A, 4);
            if (!(residual < (order == 0 ? 2e-4 : 2e-3)))
                fail_msg("n %d, order %d: %g", (int)sizes[s], order, residual);
            free(A.at);
            free(X.at);
        }
}

TEST(newtons_ridge_is_absolute_and_lifts_nothing)
{
    static const double values[] = { 8, 4, 2, -0.25 };
    pd_root_want want = newton(2, 0.5);
    pd_root_report report;
    pd_mat A = roots_with(values, 4, 9), X = root_of(A, &want, &report);

    for (int i = 0; i < 4; i++) A.at[i * 5] += 0.5f;
    assert_true(roots_residual(X, A, 2) < 1e-4);
    assert_true(fabs(report.largest - sqrt(8.5 * 8.5 + 4.5 * 4.5 + 2.5 * 2.5 + 0.25 * 0.25)) < 1e-4);
    free(A.at);
    free(X.at);
}

TEST(the_ridge_of_higher_order_is_relative_to_a_bound)
{
    static const double scales[] = { 1, 1e6, 1e-6 };

    for (int s = 0; s < 3; s++) {
        pd_root_want want = of_order(3, 2, 1, 0.1);
        pd_root_report report;
        pd_mat A = matrix_of(10, scales[s], 50, 3), X = root_of(A, &want, &report);
        assert_true(report.largest >= scales[s] * (1 - 1e-6) && report.largest <= 1.8 * scales[s]);
        assert_true(roots_shifted_error(X, A, 0.5, 0.1 * report.largest) < 1e-5);
        free(A.at);
        free(X.at);
    }
}

/* The two norms are |A| and |A^4|^(1/4), where |.| is the largest sum of a row. Here the second is clearly smaller. */
TEST(the_bound_is_the_lesser_of_two_norms)
{
    pd_mat A = roots_matrix(3);
    double fourth = 0, norm = 0, S[9], P[9];
    pd_root_want want = of_order(2, 2, 1, 1e-3);
    pd_root_report report;
    pd_mat X;

    for (int i = 0; i < 9; i++) A.at[i] = i % 4 == 0 ? (float)(1 + i) : 0.5f;
    for (int i = 0; i < 9; i++) S[i] = (double)A.at[i];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 9; i++) {
            P[i] = 0;
            for (int k = 0; k < 3; k++) P[i] += S[i / 3 * 3 + k] * S[k * 3 + i % 3];
        }
        memcpy(S, P, sizeof S);
    }
    for (int i = 0; i < 3; i++) {
        norm = fmax(norm, (double)(A.at[i * 3] + A.at[i * 3 + 1] + A.at[i * 3 + 2]));
        fourth = fmax(fourth, P[i * 3] + P[i * 3 + 1] + P[i * 3 + 2]);
    }
    X = root_of(A, &want, &report);
    assert_true(pow(fourth, 0.25) < 0.99 * norm && fabs(report.largest / pow(fourth, 0.25) - 1) < 1e-6);
    free(A.at);
    free(X.at);
}

TEST(a_ridge_is_never_below_1e_16)
{
    pd_root_want want = of_order(2, 4, 1, 1e-12);
    pd_root_report report;
    pd_mat A = matrix_of(5, 1e-14, 100, 4), X = root_of(A, &want, &report);

    assert_true(roots_shifted_error(X, A, 0.25, 1e-16) < 1e-5);
    free(A.at);
    free(X.at);
}

TEST(rational_roots_are_powers_of_whole_ones)
{
    static const int roots[][2] = { { 4, 3 }, { 3, 2 }, { 2, 1 }, { 1, 2 }, { 5, 5 }, { 20, 9 } };
    pd_mat A = matrix_of(8, 2, 30, 6);

    for (size_t r = 0; r < sizeof roots / sizeof *roots; r++)
        for (int order = 2; order <= 4; order++) {
            pd_root_want want = of_order(order, roots[r][0], roots[r][1], 1e-6);
            pd_root_report report;
            pd_mat X = root_of(A, &want, &report);
            double error = roots_shifted_error(X, A, (double)roots[r][1] / roots[r][0], 1e-6 * report.largest);
            if (!(error < 3e-5)) fail_msg("%d/%d, order %d: %g", roots[r][0], roots[r][1], order, error);
            free(X.at);
        }
    free(A.at);
}

TEST(no_q_counts_as_1)
{
    pd_root_want one = of_order(3, 4, 1, 1e-6), none = of_order(3, 4, 0, 1e-6);
    pd_root_report report;
    pd_mat A = matrix_of(6, 1, 10, 2), X = root_of(A, &one, &report), Y = root_of(A, &none, &report);

    assert_memory_equal(X.at, Y.at, 36 * sizeof *X.at);
    free(A.at), free(X.at), free(Y.at);
}

TEST(a_higher_order_takes_fewer_steps)
{
    pd_mat A = matrix_of(20, 1, 1000, 7);
    int steps[8] = { 0 };

    for (int order = 2; order <= 7; order++) {
        pd_root_want want = of_order(order, 4, 1, 1e-5);
        pd_root_report report;
        pd_mat X = root_of(A, &want, &report);
        assert_true(roots_shifted_error(X, A, 0.25, 1e-5 * report.largest) < 1e-4);
        assert_int_equal(report.ended, PD_ENDED_CONVERGED);
        steps[order] = report.iterations;
        free(X.at);
    }
    assert_true(steps[3] < steps[2] && steps[4] < steps[3] && steps[7] < steps[4]);
    free(A.at);
}

TEST(no_more_steps_are_taken_than_wanted)
{
    pd_root_want want = newton(2, 1e-6);
    pd_root_report report;
    pd_mat A = matrix_of(8, 1, 1000, 4), X;
    double whole;

    X = root_of(A, &want, &report);
    whole = roots_residual(X, A, 2);
    free(X.at);
    want.iterations = 4;
    X = root_of(A, &want, &report); /* accepted, although its error is large */
    assert_int_equal(report.iterations, 4);
    assert_int_equal(report.ended, PD_ENDED_LIMIT);
    assert_true(report.error > 0.1 && report.error < 1 && roots_residual(X, A, 2) > 100 * whole);
    free(A.at);
    free(X.at);
}

TEST(a_larger_tolerance_stops_sooner)
{
    pd_root_want want = newton(4, 1e-6);
    pd_root_report close, far;
    pd_mat A = matrix_of(8, 1, 1000, 4), X = root_of(A, &want, &close);

    free(X.at);
    want.tolerance = 0.05;
    X = root_of(A, &want, &far);
    assert_true(far.iterations < close.iterations && far.error <= 0.05 && far.error > 1e-6 &&
                far.ended == PD_ENDED_CONVERGED);
    free(A.at);
    free(X.at);
}

/* Rounding keeps M from reaching I. The iteration stops when M no longer comes nearer to I, or when the distance
 * grows by more than a fifth: the root would not get better. */
TEST(higher_order_stops_where_it_gets_no_better)
{
    pd_mat A = matrix_of(40, 1, 100, 4);
    int early = 0;

    for (int order = 2; order <= 5; order++) {
        pd_root_want want = of_order(order, 4, 1, 1e-5);
        pd_root_report report;
        pd_mat X;
        want.tolerance = 1e-20;
        X = root_of(A, &want, &report);
        assert_true(report.iterations < 20 && report.ended != PD_ENDED_LIMIT);
        assert_true(roots_shifted_error(X, A, 0.25, 1e-5 * report.largest) < 1e-4);
        early += report.ended == PD_ENDED_EARLY;
        free(X.at);
    }
    assert_true(early > 0);
    free(A.at);
}

TEST(a_root_of_higher_order_that_is_not_good_is_refused)
{
    pd_root_want want = of_order(2, 2, 1, 1e-6);
    pd_root_report report;
    pd_mat A = matrix_of(8, 1, 1000, 4), X = roots_matrix(8);

    want.iterations = 4;
    assert_int_equal(pd_root_higher_order(X, A, &want, &report), PD_OUT_OF_RANGE);
    assert_true(report.error > 0.1 && report.error < 1);
    assert_int_equal(report.ended, PD_ENDED_LIMIT);
    want = of_order(2, 2, 1, 1e-12); /* a singular matrix: this ridge is too small for float32 */
    for (int i = 0; i < 64; i++) A.at[i] = 1;
    assert_int_equal(pd_root_higher_order(X, A, &want, &report), PD_OUT_OF_RANGE);
    free(A.at);
    free(X.at);
}

/* The fourth power of a matrix with such large numbers is beyond float32, and that of one with such small numbers is
 * lost. */
TEST(scaling_the_matrix_scales_the_root)
{
    static const float scales[] = { 0x1p80f, 0x1p-32f };

    for (int s = 0; s < 2; s++) {
        pd_root_want want = of_order(3, 4, 1, 1e-5);
        pd_root_report report;
        pd_mat A = matrix_of(6, 1, 50, 3), X = root_of(A, &want, &report), Y;
        for (int i = 0; i < 36; i++) A.at[i] *= scales[s];
        Y = root_of(A, &want, &report);
        for (int i = 0; i < 36; i++)
            assert_true(fabs((double)Y.at[i] * pow((double)scales[s], 0.25) - (double)X.at[i]) < 1e-4);
        free(A.at), free(X.at), free(Y.at);
    }
}

TEST(what_is_not_finite_is_refused)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int b = 0; b < 3; b++)
        for (int order = 0; order <= 2; order += 2) {
            pd_root_want want = order == 0 ? newton(4, 1e-3) : of_order(order, 4, 1, 1e-3);
            pd_root_report report;
            pd_mat A = matrix_of(4, 1, 10, 1), X = roots_matrix(4);
            A.at[2] = A.at[8] = bad[b];
            assert_int_equal(method_of(&want)(X, A, &want, &report), PD_OUT_OF_RANGE);
            assert_true(isnan(report.error));
            free(A.at);
            free(X.at);
        }
}

TEST(a_diverging_newton_says_that_it_did_not_converge)
{
    static const double values[] = { 1, 0.5, -0.5 };
    pd_root_want want = newton(2, 1e-3);
    pd_root_report report;
    pd_mat A = roots_with(values, 3, 3), X = roots_matrix(3);

    if (pd_root_coupled(X, A, &want, &report) == PD_OK) assert_int_equal(report.ended, PD_ENDED_LIMIT);
    assert_false(report.error <= 1e-6);
    free(A.at);
    free(X.at);
}

TEST(a_retry_of_newton_decomposes_with_the_same_ridge)
{
    static const double values[] = { 1, 0.5, -0.5 };
    pd_root_want want = newton(2, 1e-3), alone = want;
    pd_root_report report, expected;
    pd_mat A = roots_with(values, 3, 3), X = roots_matrix(3), Y = roots_matrix(3), none = { 0 };

    want.retries = 1;
    alone.method = PD_ROOT_EIGH64, alone.exponent = 0.5;
    assert_int_equal(pd_root(X, none, A, &want, &report), PD_OK);
    assert_int_equal(pd_root(Y, none, A, &alone, &expected), PD_OK);
    assert_memory_equal(X.at, Y.at, 9 * sizeof *X.at);
    assert_true(report.tries == 2 && report.error == expected.error);
    free(A.at), free(X.at), free(Y.at);
}

TEST(a_retry_of_higher_order_has_the_ridge_that_was_made_of_the_bound)
{
    pd_root_want want = of_order(2, 4, 3, 1e-3), alone;
    pd_root_report report, bound;
    pd_mat A = matrix_of(5, 7, 1000, 3), X = roots_matrix(5), Y = roots_matrix(5), none = { 0 };

    want.iterations = 2;
    assert_int_equal(pd_root_higher_order(X, A, &want, &bound), PD_OUT_OF_RANGE);
    alone = want;
    alone.method = PD_ROOT_EIGH64, alone.exponent = 0.75, alone.epsilon = 1e-3 * bound.largest;
    want.retries = 1;
    assert_int_equal(pd_root(X, none, A, &want, &report), PD_OK);
    assert_int_equal(pd_root(Y, none, A, &alone, &report), PD_OK);
    assert_memory_equal(X.at, Y.at, 25 * sizeof *X.at);
    free(A.at), free(X.at), free(Y.at);
}

TEST(leaves_the_gaps_of_a_strided_matrix_and_the_matrix)
{
    pd_mat A = matrix_of(5, 1, 10, 2), wide = roots_matrix(8), X = roots_matrix(8), expected;

    for (int order = 0; order <= 2; order += 2) {
        pd_root_want want = order == 0 ? newton(3, 1e-3) : of_order(order, 3, 2, 1e-3);
        pd_root_report report;
        expected = root_of(A, &want, &report);
        for (int i = 0; i < 64; i++) wide.at[i] = NAN, X.at[i] = -1;
        for (int i = 0; i < 5; i++) memcpy(wide.at + i * 8, A.at + i * 5, 5 * sizeof *A.at);
        assert_int_equal(method_of(&want)((pd_mat){ X.at, 5, 5, 8 }, (pd_mat){ wide.at, 5, 5, 8 }, &want, &report),
                         PD_OK);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++) {
                assert_true(X.at[i * 8 + j] == (i < 5 && j < 5 ? expected.at[i * 5 + j] : -1));
                assert_true(i < 5 && j < 5 ? wide.at[i * 8 + j] == A.at[i * 5 + j] : isnan(wide.at[i * 8 + j]));
            }
        free(expected.at);
    }
    free(A.at), free(wide.at), free(X.at);
}

TEST(out_of_memory_is_told)
{
    pd_mat A = matrix_of(5, 1, 10, 2), X = roots_matrix(5);

    for (int order = 0; order <= 2; order += 2) {
        pd_root_want want = order == 0 ? newton(3, 1e-3) : of_order(order, 3, 2, 1e-3);
        pd_root_report report;
        int rc;
        oom_arm(0);
        rc = method_of(&want)(X, A, &want, &report);
        assert_true(oom_disarm());
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    free(A.at);
    free(X.at);
}

TEST(they_cost_more_than_a_decomposition)
{
    for (pd_root_method m = PD_ROOT_COUPLED; m <= PD_ROOT_HIGHER_ORDER; m++) {
        assert_true(pd_root_flops(m, 1024, 4) == 8 * pd_root_flops(m, 512, 4));
        assert_true(pd_root_flops(m, 512, 4) > pd_root_flops(PD_ROOT_EIGH64, 512, 4));
        assert_true(pd_root_flops(m, 512, 6) > pd_root_flops(m, 512, 4));
    }
}
