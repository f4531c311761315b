/* Tests the largest eigenvalue by power iteration. */
#include "test.h"
#include "root_types.h"
#include "root.h"

enum { MOST = 40 };

static void assert_near(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b))) fail_msg("%.17g and %.17g", a, b);
}

/* The reference: power iteration on the explicitly padded matrix. Returns the number of iterations. */
static int naive(double *largest, double *v, const double *A, int n, int side, double padding)
{
    double built[MOST][MOST] = { { 0 } }, x[MOST], y[MOST], s = 0;

    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) built[i][j] = i < n && j < n ? A[i * n + j] : i == j ? padding : 0;
    pd_start_vector(x, side);
    for (int step = 1;; step++) {
        double norm = 0, quotient = 0, last = s;
        for (int i = 0; i < side; i++) norm += x[i] * x[i];
        for (int i = 0; i < side; i++) x[i] /= sqrt(norm);
        for (int i = 0; i < side; i++) {
            y[i] = 0;
            for (int j = 0; j < side; j++) y[i] += built[i][j] * x[j];
            quotient += x[i] * y[i];
        }
        memcpy(x, y, sizeof x);
        s = quotient;
        if (step < 100 && fabs(quotient - last) > 1e-6) continue;
        norm = 0;
        for (int i = 0; i < side; i++) norm += x[i] * x[i];
        for (int i = 0; i < side; i++) v[i] = x[i] / sqrt(norm);
        *largest = s;
        return step;
    }
}

/* Fills A with a positive semi-definite n by n matrix whose entries are of about the given size. */
static void fill(double *A, int n, double size)
{
    double B[MOST * MOST];

    pd_start_vector(B, (int64_t)n * n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            A[i * n + j] = 0;
            for (int k = 0; k < n; k++) A[i * n + j] += size * B[i * n + k] * B[j * n + k] / n;
        }
}

TEST(the_start_vector_is_that_of_the_generator)
{
    static const double first[] = { -0.5756828096125337, -0.4819635189444771, -0.15295624010794273,
                                    0.4393220275759613 };
    double v[4], long_one[1000];

    pd_start_vector(v, 4);
    pd_start_vector(long_one, 1000); /* more numbers than the first 624 words of MT19937 give */
    for (int i = 0; i < 4; i++) assert_true(v[i] == first[i] && long_one[i] == first[i]);
    for (int i = 0; i < 1000; i++) assert_true(long_one[i] >= -1 && long_one[i] < 1);
}

TEST(agrees_with_the_rule_on_a_matrix_that_is_built)
{
    static const struct {
        int n, side;
        double padding, size;
    } cases[] = {
        { 1, 1, 1, 3 },     { 1, 0, 1, 3 },      { 5, 5, 1, 2 },      { 5, 9, 1, 2 },     { 5, 9, 0, 2 },
        { 5, 9, 1, 1e-4 },  { 5, 40, 0, 1e-4 },  { 1, 7, 1, 0.5 },    { 1, 7, 0, 0.5 },   { 30, 31, 1, 100 },
        { 30, 40, 0, 100 }, { 12, 13, 1, 1e-9 }, { 12, 20, 0, 1e-9 }, { 12, 0, 1, 1e20 },
    };

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int n = cases[c].n, side = cases[c].side > 0 ? cases[c].side : n;
        double A[MOST * MOST], v[MOST], expected_v[MOST], largest, expected;
        fill(A, n, cases[c].size);
        naive(&expected, expected_v, A, n, side, cases[c].padding);
        assert_int_equal(pd_power_iteration(&largest, v, A, n, cases[c].side, cases[c].padding), PD_OK);
        assert_near(largest, expected, 1e-12);
        for (int i = 0; i < side; i++)
            if (!(fabs(v[i] - expected_v[i]) < 1e-10))
                fail_msg("case %zu, entry %d: %.17g and %.17g", c, i, v[i], expected_v[i]);
    }
}

TEST(finds_the_largest_eigenvalue)
{
    double A[MOST * MOST] = { 0 }, v[MOST], largest;

    for (int i = 0; i < 10; i++) A[i * 10 + i] = i == 7 ? 5 : 1;
    assert_int_equal(pd_power_iteration(&largest, v, A, 10, 0, 1), PD_OK);
    assert_near(largest, 5, 1e-6);
    assert_near(fabs(v[7]), 1, 1e-6);
    assert_int_equal(pd_power_iteration(&largest, v, A, 10, 11, 1), PD_OK);
    assert_near(largest, 5, 1e-6);
}

TEST(sees_the_ones_of_the_padding_beside_a_small_matrix)
{
    double A[MOST * MOST], with, without, zeros;

    fill(A, 8, 1e-4);
    assert_int_equal(pd_power_iteration(&with, NULL, A, 8, 12, 1), PD_OK);
    assert_int_equal(pd_power_iteration(&without, NULL, A, 8, 0, 1), PD_OK);
    assert_int_equal(pd_power_iteration(&zeros, NULL, A, 8, 12, 0), PD_OK);
    assert_near(with, 1, 1e-6);
    assert_true(without < 3e-4 && zeros < 3e-4);
}

TEST(stops_after_one_pass_where_the_matrix_is_smaller_than_the_tolerance)
{
    double A[4] = { 1e-7, 0, 0, 1e-9 }, v[2], norm, largest;

    pd_start_vector(v, 2);
    norm = v[0] * v[0] + v[1] * v[1];
    assert_int_equal(pd_power_iteration(&largest, NULL, A, 2, 0, 1), PD_OK);
    assert_near(largest, (1e-7 * v[0] * v[0] + 1e-9 * v[1] * v[1]) / norm,
                1e-12); /* a Rayleigh quotient of the start vector, not an eigenvalue */
}

TEST(a_small_matrix_that_takes_many_steps_is_not_spoiled_by_padding_that_is_not_there)
{
    double A[MOST * MOST] = { 0 }, v[MOST], largest, expected;

    for (int i = 0; i < MOST; i++) A[i * MOST + i] = 0.019 + 0.001 * i / (MOST - 1);
    assert_true(naive(&expected, v, A, MOST, MOST, 1) >= 95); /* the square of (1 / 0.0195)^95 would overflow */
    assert_int_equal(pd_power_iteration(&largest, NULL, A, MOST, MOST, 1), PD_OK);
    assert_near(largest, expected, 1e-12);
}

TEST(a_zero_matrix_has_the_eigenvalue_0)
{
    double A[9] = { 0 }, largest = 7;

    assert_int_equal(pd_power_iteration(&largest, NULL, A, 3, 0, 1), PD_OK);
    assert_true(largest == 0);
    assert_int_equal(pd_power_iteration(&largest, NULL, A, 3, 5, 0), PD_OK);
    assert_true(largest == 0);
}

TEST(a_matrix_that_is_not_finite_is_out_of_range)
{
    double A[4] = { 1, 0, NAN, 1 }, largest;

    assert_int_equal(pd_power_iteration(&largest, NULL, A, 2, 0, 1), PD_OUT_OF_RANGE);
    A[2] = INFINITY;
    assert_int_equal(pd_power_iteration(&largest, NULL, A, 2, 3, 0), PD_OUT_OF_RANGE);
}

TEST(out_of_memory_is_told)
{
    double A[4] = { 1, 0, 0, 1 }, largest;

    for (int64_t n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = pd_power_iteration(&largest, NULL, A, 2, 0, 1);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
}
