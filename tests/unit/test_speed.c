/* Tests the steps per second of a job: the averaging window, slow jobs, and a step that takes longer than earlier
 * ones. */
#include "test.h"
#include "job.h"

static const uint64_t s = 1000000000ull, ms = 1000000ull;

static void assert_near(double a, double b)
{
    assert_true(a > b * 0.98 && a < b * 1.02);
}

/* Records n steps, one every `every_ns` after the time `at`. Returns the time of the last step. */
static uint64_t run(pd_speed *speed, uint64_t first, uint64_t n, uint64_t at, uint64_t every_ns)
{
    for (uint64_t i = 0; i < n; i++) pd_speed_note(speed, first + i, at += every_ns);
    return at;
}

TEST(a_job_of_less_than_two_steps_has_no_speed)
{
    pd_speed speed = { 0 };

    assert_true(pd_speed_at(&speed, 5 * s) == 0);
    pd_speed_note(&speed, 1, 6 * s);
    assert_true(pd_speed_at(&speed, 7 * s) == 0);
}

TEST(steps_before_the_first_one_seen_do_not_count)
{
    pd_speed speed = { 0 };

    pd_speed_note(&speed, 10000, s);
    pd_speed_note(&speed, 10001, 2 * s);
    assert_near(pd_speed_at(&speed, 2 * s), 1);
}

TEST(an_even_pace_is_its_speed)
{
    pd_speed fast = { 0 }, slow = { 0 };
    uint64_t at = run(&fast, 1, 5000, s, 10 * ms);

    assert_near(pd_speed_at(&fast, at + 5 * ms), 100);
    at = run(&slow, 1, 100, s, 30 * s);
    assert_near(pd_speed_at(&slow, at + 20 * s), 1 / 30.0);
}

TEST(a_change_of_pace_is_seen_within_the_window)
{
    pd_speed speed = { 0 };
    uint64_t at = run(&speed, 1, 1000, s, 10 * ms);

    at = run(&speed, 1001, 75, at, 200 * ms); /* 15 s */
    assert_near(pd_speed_at(&speed, at), 5);
}

TEST(the_speed_falls_while_a_step_takes_long)
{
    pd_speed speed = { 0 };
    uint64_t at = run(&speed, 1, 2000, s, 10 * ms);

    assert_near(pd_speed_at(&speed, at + 10 * ms), 100);
    assert_true(pd_speed_at(&speed, at + 10 * s) > 45 && pd_speed_at(&speed, at + 10 * s) < 55);
    assert_true(pd_speed_at(&speed, at + 3600 * s) < 0.5);
}

TEST(several_parameters_may_note_the_same_step)
{
    pd_speed speed = { 0 };

    for (uint64_t step = 1; step <= 100; step++)
        for (uint64_t p = 0; p < 3; p++) pd_speed_note(&speed, step, step * 100 * ms + p * ms);
    assert_near(pd_speed_at(&speed, 10 * s), 10);
}
