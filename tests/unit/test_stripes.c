/* Tests how large products are cut into stripes, and that threads run each stripe once. */
#include "test.h"
#include "stripes.h"

enum { MOST = 32, UNITS = 7 };

TEST(a_product_of_two_matrices_of_side_1024_is_not_cut)
{
    assert_int_equal(pd_stripes_of(2 * 1024.0 * 1024 * 1024, 100), 1);
    assert_int_equal(pd_stripes_of(0, 100), 1);
    assert_int_equal(pd_stripes_of(NAN, 100), 1);
    assert_true(pd_stripes_of(2 * 1024.0 * 1024 * 1040, 100) > 1);
}

TEST(there_are_no_more_stripes_than_the_caller_can_use)
{
    for (int64_t most = 1; most <= 100; most++) {
        int stripes = pd_stripes_of(1e13, most);
        assert_int_equal(stripes, most < MOST ? most : MOST);
    }
    assert_int_equal(pd_stripes_of(1e13, 0), 1);
    assert_int_equal(pd_stripes_of(1e13, INT64_MAX), MOST);
}

TEST(bounds_cover_all_rows_in_order)
{
    static const int64_t sizes[] = { 0, 1, 2, 5, 31, 100, 1000, 1023, 4096, 50257, 2147483647 };

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int growth = PD_STRIPE_EVEN; growth <= PD_STRIPE_CUBE; growth++)
            for (int stripes = 1; stripes <= MOST; stripes++) {
                int64_t last = pd_stripe_bound(sizes[k], (pd_stripe_growth)growth, 0, stripes);
                assert_int_equal(last, 0);
                for (int i = 1; i <= stripes; i++) {
                    int64_t bound = pd_stripe_bound(sizes[k], (pd_stripe_growth)growth, i, stripes);
                    assert_true(bound >= last);
                    last = bound;
                }
                assert_int_equal(last, sizes[k]);
            }
}

TEST(stripes_of_one_product_cost_about_the_same)
{
    enum { N = 4096, STRIPES = 16 };

    for (int growth = PD_STRIPE_EVEN; growth <= PD_STRIPE_CUBE; growth++)
        for (int i = 0; i < STRIPES; i++) {
            double first = (double)pd_stripe_bound(N, (pd_stripe_growth)growth, i, STRIPES) / N,
                   end = (double)pd_stripe_bound(N, (pd_stripe_growth)growth, i + 1, STRIPES) / N;
            double cost = pow(end, growth) - pow(first, growth);
            assert_true(fabs(cost * STRIPES - 1) < 0.25);
        }
}

typedef struct tally {
    int runs[MOST];
} tally;

static void count(const void *work, int stripe)
{
    tally *const *t = work;

    (*t)->runs[stripe]++; /* no other stripe writes this element */
}

TEST(each_stripe_runs_once_before_the_call_returns)
{
    for (int threads = 1; threads <= 5; threads++)
        for (int stripes = 1; stripes <= MOST; stripes += 3) {
            tally all[UNITS] = { { { 0 } } };
            int missed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : missed)
            for (int unit = 0; unit < UNITS; unit++) {
                tally *own = &all[unit];
                pd_stripes_run(stripes, count, &own);
                for (int i = 0; i < MOST; i++) missed += own->runs[i] != (i < stripes);
            }
            assert_int_equal(missed, 0);
        }
}

TEST(without_a_parallel_region_the_caller_runs_all_stripes)
{
    tally t = { { 0 } }, *own = &t;

    pd_stripes_run(5, count, &own);
    for (int i = 0; i < MOST; i++) assert_int_equal(t.runs[i], i < 5);
}
