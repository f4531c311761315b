/* Tests the choice of a method for inverse roots, and its retries. */
#include "test.h"
#include "root.h"
#include "root_types.h"

enum { N = 8, STRIDE = N + 3 };

typedef struct fixture {
    float memory[4][N * STRIDE];
    pd_mat A, X, Y, Q; /* Y: the root from a method that is called directly */
} fixture;

static void set_up(fixture *f)
{
    pd_mat *views[] = { &f->A, &f->X, &f->Y, &f->Q };

    for (int i = 0; i < 4; i++) *views[i] = (pd_mat){ f->memory[i], N, N, STRIDE };
}

/* Sets A to R diag(value) R with the reflection R = I - 2 v v' / |v|^2, where v = (1, 2, ...). */
static void fill(pd_mat A, const double *value)
{
    double square = 0;

    for (int k = 0; k < N; k++) square += (k + 1) * (k + 1);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += value[k] * ((i == k) - 2.0 * (i + 1) * (k + 1) / square) *
                       ((j == k) - 2.0 * (j + 1) * (k + 1) / square);
            A.at[i * A.stride + j] = (float)sum;
        }
}

/* Fills A with eigenvalues from 1 down to 1 / condition, evenly spaced in their logarithms. */
static void fill_with_condition(pd_mat A, double condition)
{
    double value[N];

    for (int i = 0; i < N; i++) value[i] = pow(condition, -(double)i / (N - 1));
    fill(A, value);
}

/* Fills A with ones, and 1.006 on the diagonal. With p = 4 Newton's growth rule refuses this matrix, although its
 * condition number is only about 1400. */
static void fill_trap(pd_mat A)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) A.at[i * A.stride + j] = i == j ? 1.006f : 1;
}

static pd_root_want wanting(pd_root_method method)
{
    return (pd_root_want){ .method = method, .p = 4, .epsilon = 1e-6, .padding = 1, .most_error = 0.1 };
}

static int by_itself(fixture *f, const pd_root_want *want, pd_root_report *report)
{
    switch (want->method) {
    case PD_ROOT_NEWTON: return pd_root_newton(f->Y, f->A, want, report);
    case PD_ROOT_EIGH: return pd_root_eigh(f->Y, f->A, want, report);
    case PD_ROOT_EIGH64: return pd_root_eigh64(f->Y, f->A, want, report);
    case PD_ROOT_TRACKED:
    case PD_ROOT_QR:
    case PD_ROOT_COUPLED:
    case PD_ROOT_HIGHER_ORDER: break;
    }
    memset(f->memory[3], 0, sizeof f->memory[3]);
    return pd_root_tracked(f->Y, f->Q, f->A, want, report);
}

static void assert_same(fixture *f)
{
    for (int i = 0; i < N; i++) assert_memory_equal(f->X.at + i * STRIDE, f->Y.at + i * STRIDE, N * sizeof(float));
}

static const pd_root_method every_method[] = { PD_ROOT_NEWTON, PD_ROOT_EIGH, PD_ROOT_EIGH64, PD_ROOT_TRACKED };

FIXTURE(fixture, set_up, NULL);

TEST(computes_by_the_method_wanted, fixture *f)
{
    fill_with_condition(f->A, 100);
    for (int m = 0; m < 4; m++) {
        pd_root_want want = wanting(every_method[m]);
        pd_root_report report, expected;
        assert_int_equal(by_itself(f, &want, &expected), PD_OK);
        memset(f->memory[3], 0, sizeof f->memory[3]);
        assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
        assert_same(f);
        assert_true(report.error == expected.error && report.error < 1e-4 && report.largest == expected.largest);
        assert_true(report.condition == expected.condition && report.condition > 50 && report.condition < 200);
        assert_int_equal(report.iterations, expected.iterations);
        assert_int_equal(report.decomposed, expected.decomposed);
        assert_int_equal(report.tries, 1);
    }
}

TEST(leaves_the_matrix_as_it_was, fixture *f)
{
    float before[N * STRIDE];

    fill_with_condition(f->A, 1000);
    memcpy(before, f->memory[0], sizeof before);
    for (int m = 0; m < 4; m++) {
        pd_root_want want = wanting(every_method[m]);
        pd_root_report report;
        assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
        assert_memory_equal(before, f->memory[0], sizeof before);
    }
}

TEST(without_retries_a_bad_root_comes_back_with_its_error, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_NEWTON);
    pd_root_report report;

    fill_trap(f->A);
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
    assert_true(report.error > 0.1);
    assert_int_equal(report.tries, 1);
}

TEST(the_first_retry_decomposes_in_float64_with_the_same_ridge, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_NEWTON), alone = wanting(PD_ROOT_EIGH64);
    pd_root_report report, expected;

    fill_trap(f->A);
    want.retries = 5;
    assert_int_equal(by_itself(f, &alone, &expected), PD_OK);
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
    assert_same(f);
    assert_true(report.error == expected.error && report.error < 0.1 && report.decomposed);
    assert_int_equal(report.tries, 2);
}

/* The allowed error lies between the errors with the second and the third ridge, so two retries are needed. */
TEST(later_retries_have_a_ridge_ten_times_larger_each, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_EIGH), alone = wanting(PD_ROOT_EIGH64);
    pd_root_report report, with[3];
    static const double epsilon[] = { 1e-10, 1e-9, 1e-8 };

    fill_with_condition(f->A, 1e12);
    for (int i = 0; i < 3; i++) {
        alone.epsilon = epsilon[i];
        assert_int_equal(by_itself(f, &alone, &with[i]), PD_OK);
        assert_true(i == 0 || with[i].error < with[i - 1].error);
    }
    want.epsilon = epsilon[0];
    want.most_error = sqrt(with[1].error * with[2].error);
    want.retries = 9;
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
    assert_int_equal(report.tries, 4);
    assert_true(fabs(report.error - with[2].error) <= 1e-3 * with[2].error && report.error < want.most_error);
}

TEST(where_no_try_is_good_the_last_one_comes_back, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_EIGH), last = wanting(PD_ROOT_EIGH64);
    pd_root_report report, expected;

    fill_with_condition(f->A, 100);
    want.most_error = 0;
    want.retries = 1;
    assert_int_equal(by_itself(f, &last, &expected), PD_OK);
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
    assert_same(f);
    assert_true(report.error == expected.error);
    assert_int_equal(report.tries, 2);
}

TEST(where_every_try_fails_so_does_the_root, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_NEWTON);
    pd_root_report report;
    static const double none[N];

    fill(f->A, none);
    want.epsilon = 0;
    want.retries = 3;
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OUT_OF_RANGE);
    assert_int_equal(report.tries, 4);
    assert_false(report.error < 1);
}

/* Newton's iteration diverges for this matrix. A decomposition counts the negative eigenvalue as zero. Its root is
 * good once the ridge is larger than that eigenvalue's size. */
TEST(a_slightly_negative_eigenvalue_is_rescued_by_a_larger_ridge, fixture *f)
{
    pd_root_want want = wanting(PD_ROOT_NEWTON);
    pd_root_report report;
    static const double value[N] = { 1, 0.5, 0.4, 0.3, 0.3, 0.2, 0.1, -1e-5 };

    fill(f->A, value);
    assert_true(pd_root(f->X, f->Q, f->A, &want, &report) == PD_OUT_OF_RANGE || report.error >= 0.1);
    want.retries = 6;
    assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OK);
    assert_true(report.error < 0.1 && report.tries > 2 && report.tries < 7);
}

TEST(what_is_not_finite_is_refused_at_once, fixture *f)
{
    for (int m = 0; m < 4; m++) {
        pd_root_want want = wanting(every_method[m]);
        pd_root_report report;
        fill_with_condition(f->A, 10);
        f->A.at[(N - 1) * STRIDE + m] = m % 2 ? NAN : INFINITY;
        want.retries = 3;
        assert_int_equal(pd_root(f->X, f->Q, f->A, &want, &report), PD_OUT_OF_RANGE);
        assert_int_equal(report.tries, 1);
        assert_true(isnan(report.error));
    }
}

TEST(out_of_memory_is_told_and_not_tried_again, fixture *f)
{
    fill_trap(f->A);
    for (int m = 0; m < 4; m++)
        for (int64_t n = 0;; n++) {
            pd_root_want want = wanting(every_method[m]);
            pd_root_report report;
            int rc;
            want.retries = 2;
            memset(f->memory[3], 0, sizeof f->memory[3]);
            oom_arm(n);
            rc = pd_root(f->X, f->Q, f->A, &want, &report);
            if (!oom_disarm()) break;
            assert_int_equal(rc, PD_NO_MEMORY);
            assert_true(n < 20);
        }
}

TEST(costs_grow_with_the_cube_and_rank_the_methods)
{
    for (int m = 0; m < 4; m++) {
        assert_true(pd_root_flops(every_method[m], 1024, 4) == 8 * pd_root_flops(every_method[m], 512, 4));
        assert_true(pd_root_flops(every_method[m], 2, 1) > 0);
    }
    assert_true(pd_root_flops(PD_ROOT_NEWTON, 512, 4) > pd_root_flops(PD_ROOT_EIGH64, 512, 4));
    assert_true(pd_root_flops(PD_ROOT_EIGH64, 512, 4) > pd_root_flops(PD_ROOT_EIGH, 512, 4));
    assert_true(pd_root_flops(PD_ROOT_EIGH, 512, 4) > pd_root_flops(PD_ROOT_TRACKED, 512, 4));
    assert_true(pd_root_flops(PD_ROOT_NEWTON, 512, 6) > pd_root_flops(PD_ROOT_NEWTON, 512, 4));
}
