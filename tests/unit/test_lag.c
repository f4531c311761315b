/* Tests the percentiles of the loop thread's lag, which is the time that it computes between two polls. */
#include "test.h"
#include "loop.h"

TEST(percentiles_are_within_a_bucket_of_the_truth)
{
    pd_lag lag = { .polls = 0 };
    double p50, p999;

    for (int i = 1; i <= 10000; i++)
        pd_lag_count(&lag, (uint64_t)i * 1000); /* lags from 1 us to 10 ms, evenly distributed */
    p50 = pd_lag_percentile(&lag, 0.5);
    p999 = pd_lag_percentile(&lag, 0.999);
    assert_true(p50 >= 5.0 && p50 <= 5.0 * 1.1);
    assert_true(p999 >= 9.99 && p999 <= 10.0);
    assert_int_equal(lag.largest_ns, 10000000);
}

TEST(nothing_counted_is_zero)
{
    pd_lag lag = { .polls = 0 };
    assert_true(pd_lag_percentile(&lag, 0.999) == 0);
}

TEST(never_tells_more_than_the_largest)
{
    pd_lag lag = { .polls = 0 };

    pd_lag_count(&lag, 1500);
    assert_true(pd_lag_percentile(&lag, 1) == 0.0015);
    pd_lag_count(&lag, UINT64_MAX / 2); /* a lag beyond the histogram's last bucket */
    assert_true(pd_lag_percentile(&lag, 1) > 1e6);
}

TEST(counts_what_this_thread_computes_between_two_polls)
{
    pd_lag lag = { .polls = 0 };
    volatile double x = 1;

    pd_lag_poll(&lag);
    assert_int_equal(lag.polls, 0);
    for (int i = 0; i < 3000000; i++) x = x * 1.0000001;
    pd_lag_poll(&lag);
    assert_int_equal(lag.polls, 1);
    assert_true(lag.largest_ns > 100000);
}
