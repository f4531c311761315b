/* Tests the arithmetic of DiLoCo on a worker's weights, its schedule of fragments, and a worker's place in bytes. */
#include "test.h"
#include "diloco_math.h"
#include "outer.h"

enum { N = 67, MOST_FRAGMENTS = 6, ROOM = 512 };

/* A pd_diloco that counts inner steps, without a client. */
typedef struct counting {
    pd_diloco d;
    pd_outer_fragment fragments[MOST_FRAGMENTS];
} counting;

static void begin(counting *c, size_t n, uint64_t every, uint64_t delay)
{
    *c = (counting){ .d = { .n_fragments = n,
                            .flying = -1,
                            .every = every,
                            .options = { .sync_every = every, .fragment_sync_delay = delay } } };
    c->d.fragments = c->fragments;
}

/* Takes an inner step, and notes what was sent and taken. */
static pd_diloco_due step(counting *c)
{
    pd_diloco_due due = pd_diloco_inner_step(&c->d, 1);

    if (due.send >= 0) c->d.flying = due.send;
    if (due.take >= 0) c->d.flying = -1;
    return due;
}

static float number(size_t i)
{
    return (float)((int)(i * 37 % 101) - 50);
}

TEST(a_difference_is_global_minus_local)
{
    const float global[2] = { 5, -1 }, local[2] = { 3, 4 };
    float difference[2];

    pd_diloco_difference(difference, global, local, 2);
    assert_float_equal(difference[0], 2, 0);
    assert_float_equal(difference[1], -5, 0);
}

TEST(without_alpha_a_mix_is_the_global_weights_bit_for_bit_whatever_the_local_ones_are)
{
    const float global[4] = { -0.0f, 1e-45f, NAN, 3 };
    float local[4] = { INFINITY, NAN, 1, -7 };

    pd_diloco_mix(local, global, 0, 4);
    assert_memory_equal(local, global, sizeof local);
}

TEST(a_mix_with_a_small_alpha_begins_at_the_global_weights_and_one_with_a_large_alpha_at_the_local_ones)
{
    const float global[1] = { 1.1f };
    float low[1] = { 7.7f }, high[1] = { 7.7f };
    volatile float l = 7.7f, g = 1.1f, way = l - g, part = 0.4f * way, rest = 1.0f - 0.7f, kept = way * rest;

    pd_diloco_mix(low, global, 0.4f, 1);
    pd_diloco_mix(high, global, 0.7f, 1);
    assert_float_equal(low[0], g + part, 0);
    assert_float_equal(high[0], l - kept, 0);
}

TEST(with_alpha_1_a_mix_is_the_local_weights)
{
    float local[N], global[N];

    for (size_t i = 0; i < N; i++) local[i] = number(i), global[i] = number(i + 5);
    pd_diloco_mix(local, global, 1, N);
    for (size_t i = 0; i < N; i++) assert_float_equal(local[i], number(i), 0);
}

TEST(after_a_late_answer_the_next_difference_has_the_work_that_did_not_count)
{
    float local[N], earlier[N], global[N], before[N], after[N];

    for (size_t i = 0; i < N; i++) local[i] = number(i), earlier[i] = number(2 * i), global[i] = number(3 * i);
    pd_diloco_difference(before, earlier, local, N);
    pd_diloco_carry(local, global, earlier, N);
    pd_diloco_difference(after, global, local, N);
    assert_memory_equal(after, before, sizeof after);
}

TEST(each_fragment_is_sent_and_taken_once_in_a_cycle_one_after_the_other)
{
    counting c;

    begin(&c, 4, 12, 0);
    for (int cycle = 0; cycle < 3; cycle++)
        for (int64_t t = 1; t <= 12; t++) {
            pd_diloco_due due = step(&c);
            int64_t expected = t % 3 == 0 ? t / 3 - 1 : -1;
            assert_int_equal(due.send, expected);
            assert_int_equal(due.take, expected);
        }
    assert_int_equal(c.d.inner_steps, 36);
}

TEST(with_a_delay_a_fragment_is_sent_so_many_steps_before_it_is_taken)
{
    counting c;
    int64_t sent_at = 0;

    begin(&c, 3, 15, 4);
    for (int64_t t = 1; t <= 45; t++) {
        pd_diloco_due due = step(&c);
        if (due.send >= 0) sent_at = t;
        assert_true((due.take >= 0) == (t % 5 == 0));
        if (due.take < 0) continue;
        assert_int_equal(due.take, (t - 1) / 5 % 3);
        assert_int_equal(t - sent_at, 4);
    }
}

TEST(one_fragment_at_most_is_under_way)
{
    counting c;
    int under_way = 0;

    begin(&c, 6, 18, 2);
    for (int t = 0; t < 54; t++) {
        pd_diloco_due due = step(&c);
        under_way += due.send >= 0;
        assert_true(under_way <= 1);
        under_way -= due.take >= 0;
    }
    assert_int_equal(under_way, 0);
}

TEST(a_fragment_that_was_taken_early_is_not_due_again)
{
    counting c;

    begin(&c, 1, 6, 3);
    for (int t = 0; t < 3; t++) step(&c);
    assert_int_equal(c.d.flying, 0);
    c.d.flying = -1; /* pd_diloco_finish */
    for (int t = 0; t < 3; t++) assert_int_equal(step(&c).take, -1);
}

TEST(tokens_and_steps_count_for_every_fragment_until_it_is_taken)
{
    counting c;

    begin(&c, 2, 4, 0);
    for (int t = 0; t < 3; t++) pd_diloco_inner_step(&c.d, 10);
    for (int f = 0; f < 2; f++) {
        assert_float_equal(c.fragments[f].tokens, 30, 0);
        assert_int_equal(c.fragments[f].steps, 3);
    }
}

/* Writes the place of a worker in the middle of its second cycle. Returns the number of bytes. */
static size_t saved(counting *c, uint8_t bytes[ROOM])
{
    size_t n;

    begin(c, 3, 9, 1);
    c->d.late = 2;
    for (int t = 0; t < 13; t++) step(c);
    for (int f = 0; f < 3; f++) c->fragments[f].step = f == 0 ? 2 : 1;
    c->fragments[2].carries = true;
    c->d.flying = -1;
    assert_int_equal(pd_diloco_save(&c->d, bytes, ROOM, &n), PD_OK);
    return n;
}

/* Takes inner steps until a fragment is taken, as after its push has counted. Returns it. */
static int64_t sync_next(counting *c)
{
    pd_diloco_due due = { -1, -1 };

    while (due.take < 0) due = step(c);
    c->fragments[due.take].step++;
    pd_outer_realign(&c->d);
    return due.take;
}

TEST(fragments_of_a_shard_that_has_lost_steps_are_sent_until_they_are_no_longer_behind)
{
    static const uint64_t delays[] = { 0, 3 };
    static const int64_t expected[] = { 1, 3, 1, 3, 0, 1, 2, 3, 0, 1 };

    for (size_t i = 0; i < 2; i++) {
        counting c;
        begin(&c, 4, 16, delays[i]);
        c.d.apart = true;
        for (size_t f = 0; f < 4; f++) c.fragments[f].step = f % 2 == 0 ? 9 : 7;
        c.d.at = 4; /* as pd_outer_place has it: fragment 1 is the first that is behind */
        for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) assert_int_equal(sync_next(&c), expected[k]);
    }
}

TEST(fragments_of_one_server_are_sent_in_turn_whatever_their_steps)
{
    counting c;

    begin(&c, 4, 16, 1);
    c.fragments[2].step = 5;
    for (int64_t k = 0; k < 12; k++) assert_int_equal(sync_next(&c), k % 4);
}

TEST(a_place_that_was_saved_goes_on_with_the_same_schedule)
{
    uint8_t bytes[ROOM], again[ROOM];
    counting c, other;
    size_t n = saved(&c, bytes), more;
    pd_error err;

    begin(&other, 3, 9, 1);
    for (int f = 0; f < 3; f++) other.fragments[f].step = c.fragments[f].step;
    assert_int_equal(pd_diloco_load(&other.d, bytes, n, &err), PD_OK);
    assert_int_equal(pd_diloco_save(&other.d, again, ROOM, &more), PD_OK);
    assert_int_equal(more, n);
    assert_memory_equal(again, bytes, n);
    for (int t = 0; t < 20; t++) {
        pd_diloco_due one = step(&c), two = step(&other);
        assert_int_equal(one.send, two.send);
        assert_int_equal(one.take, two.take);
    }
}

TEST(a_place_of_other_steps_than_the_job_has_is_refused_and_changes_nothing)
{
    uint8_t bytes[ROOM];
    counting c, other, before;
    size_t n = saved(&c, bytes);
    pd_error err;

    begin(&other, 3, 9, 1);
    for (int f = 0; f < 3; f++) other.fragments[f].step = 2;
    before = other;
    assert_int_equal(pd_diloco_load(&other.d, bytes, n, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "fragment 1 had taken step 1, and the job is at step 2"));
    assert_memory_equal(&other, &before, sizeof other);
}

TEST(a_place_with_other_options_is_refused)
{
    uint8_t bytes[ROOM];
    counting c, other;
    size_t n = saved(&c, bytes);
    pd_error err;

    begin(&other, 3, 12, 1);
    assert_int_equal(pd_diloco_load(&other.d, bytes, n, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "sync_every 9"));
}

TEST(bytes_that_are_no_place_are_refused)
{
    uint8_t bytes[ROOM];
    counting c, other;
    size_t n = saved(&c, bytes);
    pd_error err;

    begin(&other, 3, 9, 1);
    for (int f = 0; f < 3; f++) other.fragments[f].step = c.fragments[f].step;
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(pd_diloco_load(&other.d, bytes, cut, &err), PD_INVALID_ARGUMENT);
    bytes[8 * 5] = 200; /* inner steps of the cycle */
    assert_int_equal(pd_diloco_load(&other.d, bytes, n, &err), PD_INVALID_ARGUMENT);
}

TEST(a_place_needs_room_and_no_fragment_under_way)
{
    uint8_t bytes[ROOM];
    counting c;
    size_t n = saved(&c, bytes), needed = 0;

    assert_int_equal(pd_diloco_save(&c.d, bytes, n - 1, &needed), PD_OUT_OF_RANGE);
    assert_int_equal(needed, n);
    assert_int_equal(pd_diloco_save(&c.d, NULL, 0, &needed), PD_OK);
    c.d.flying = 1;
    assert_int_equal(pd_diloco_save(&c.d, bytes, ROOM, &needed), PD_FAILED_PRECONDITION);
}
