/* Tests the percentiles of the loop thread's lag, which is the time that it computes between two polls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loop.h"

static void percentiles_are_within_a_bucket_of_the_truth(void **state)
{
    pd_lag lag = { .polls = 0 };
    double p50, p999;
    (void)state;

    for (int i = 1; i <= 10000; i++)
        pd_lag_count(&lag, (uint64_t)i * 1000); /* lags from 1 us to 10 ms, evenly
                                                                              * distributed */
    p50 = pd_lag_percentile(&lag, 0.5);
    p999 = pd_lag_percentile(&lag, 0.999);
    assert_true(p50 >= 5.0 && p50 <= 5.0 * 1.1);
    assert_true(p999 >= 9.99 && p999 <= 10.0);
    assert_int_equal(lag.largest_ns, 10000000);
}

static void nothing_counted_is_zero(void **state)
{
    pd_lag lag = { .polls = 0 };
    (void)state;
    assert_true(pd_lag_percentile(&lag, 0.999) == 0);
}

static void never_tells_more_than_the_largest(void **state)
{
    pd_lag lag = { .polls = 0 };
    (void)state;

    pd_lag_count(&lag, 1500);
    assert_true(pd_lag_percentile(&lag, 1) == 0.0015);
    pd_lag_count(&lag, UINT64_MAX / 2); /* a lag beyond the histogram's last bucket */
    assert_true(pd_lag_percentile(&lag, 1) > 1e6);
}

static void counts_what_this_thread_computes_between_two_polls(void **state)
{
    pd_lag lag = { .polls = 0 };
    volatile double x = 1;
    (void)state;

    pd_lag_poll(&lag);
    assert_int_equal(lag.polls, 0);
    for (int i = 0; i < 3000000; i++) x = x * 1.0000001;
    pd_lag_poll(&lag);
    assert_int_equal(lag.polls, 1);
    assert_true(lag.largest_ns > 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_within_a_bucket_of_the_truth),
        cmocka_unit_test(nothing_counted_is_zero),
        cmocka_unit_test(never_tells_more_than_the_largest),
        cmocka_unit_test(counts_what_this_thread_computes_between_two_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
