/* Tests which ranks may have frames in flight: quotas, reserves, and which frames are refused when the budget is
 * used up. */
#include "test.h"
#include "payloads.h"

TEST(a_rank_with_nothing_in_flight_may_always_send_a_frame)
{
    pd_admission a = { .budget = 100 };
    pd_quota one = { 0 }, two = { 0 };

    assert_int_equal(pd_admission_join(&a, &one, 50, NULL), PD_OK);
    assert_int_equal(pd_admission_join(&a, &two, 50, NULL), PD_OK);
    assert_true(pd_admission_take(&a, &one, 50));
    assert_true(pd_admission_take(&a, &two, 50));
    assert_false(pd_admission_take(&a, &one, 1));
    pd_admission_give(&a, &one, 50);
    assert_true(pd_admission_take(&a, &one, 50));
}

TEST(divides_what_is_left_over_evenly)
{
    pd_admission a = { .budget = 100 };
    pd_quota one = { 0 }, two = { 0 };

    pd_admission_join(&a, &one, 10, NULL);
    assert_true(pd_admission_take(&a, &one, 10));
    /* a single rank may use the whole budget */
    for (int i = 0; i < 9; i++) assert_true(pd_admission_take(&a, &one, 10));
    pd_admission_give(&a, &one, 100);
    pd_admission_join(&a, &two, 10, NULL); /* each of the two ranks may now use its reserve of 10, and half of the 80
                                            * that are not reserved */
    for (int i = 0; i < 5; i++) assert_true(pd_admission_take(&a, &one, 10));
    assert_false(pd_admission_take(&a, &one, 10));
    for (int i = 0; i < 5; i++) assert_true(pd_admission_take(&a, &two, 10));
    assert_int_equal(a.used, 100);
}

TEST(a_rank_has_at_most_128_mib_beyond_its_reserve)
{
    const uint64_t mib = 1 << 20;
    pd_admission a = { .budget = 4096 * mib };
    pd_quota one = { 0 };
    uint64_t frames = 0;

    pd_admission_join(&a, &one, 4 * mib, NULL);
    while (pd_admission_take(&a, &one, 4 * mib)) frames++;
    assert_int_equal(frames, 1 + 128 / 4);
}

TEST(refuses_a_frame_beyond_the_budget)
{
    pd_admission a = { .budget = 100 };
    pd_quota one = { 0 }, two = { 0 };
    pd_error err;

    assert_int_equal(pd_admission_join(&a, &one, 60, NULL), PD_OK);
    assert_int_equal(pd_admission_join(&a, &two, 41, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "41"));
    assert_int_equal(a.reserved, 60);
    assert_int_equal(a.ranks, 1);
    pd_admission_leave(&a, &one);
    assert_int_equal(pd_admission_join(&a, &two, 41, NULL), PD_OK);
}

TEST(joining_again_replaces_the_reserve)
{
    pd_admission a = { .budget = 100 };
    pd_quota one = { 0 };

    pd_admission_join(&a, &one, 60, NULL);
    assert_int_equal(pd_admission_join(&a, &one, 80, NULL), PD_OK);
    assert_int_equal(a.reserved, 80);
    assert_int_equal(a.ranks, 1);
}

TEST(frames_in_flight_of_a_rank_that_left_still_count)
{
    pd_admission a = { .budget = 100 };
    pd_quota gone = { 0 }, one = { 0 };

    pd_admission_join(&a, &gone, 50, NULL);
    assert_true(pd_admission_take(&a, &gone, 50));
    pd_admission_leave(&a, &gone);
    pd_admission_join(&a, &one, 40, NULL);
    assert_true(pd_admission_take(&a, &one, 40));
    assert_false(pd_admission_take(&a, &one, 40));
    pd_admission_give(&a, NULL, 50);
    assert_true(pd_admission_take(&a, &one, 40));
}
