/* Tests which step the shards of a cluster go back to. */
#include "test.h"
#include "common_step.h"

/* Returns a shard at `step`, with these checkpoints; 0 ends the list. */
static pd_shard_state at(uint64_t step, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t kept[] = { a, b, c };
    pd_shard_state state = { .step = step, .top = step };

    while (state.n_kept < 3 && kept[state.n_kept] != 0) {
        state.kept[state.n_kept] = kept[state.n_kept];
        state.n_kept++;
    }
    return state;
}

/* Returns a shard at `step` whose WAL has all steps from `first` on. */
static pd_shard_state logged(uint64_t step, uint64_t first, uint64_t a, uint64_t b)
{
    pd_shard_state state = at(step, a, b, 0);

    state.replays = true;
    state.first = first;
    return state;
}

static void expect(const pd_shard_state *states, size_t n, uint64_t expected)
{
    uint64_t step = 0;

    assert_true(pd_common_step(states, n, &step));
    assert_int_equal(step, expected);
}

static void expect_none(const pd_shard_state *states, size_t n)
{
    uint64_t step = 77;

    assert_false(pd_common_step(states, n, &step));
    assert_int_equal(step, 77);
}

#define STATES(...)                                                                                                    \
    (const pd_shard_state[]){ __VA_ARGS__ }, sizeof((pd_shard_state[]){ __VA_ARGS__ }) / sizeof(pd_shard_state)

HOLDS(the_newest_step_that_all_have_is_taken, expect(STATES(at(46, 45, 40, 35), at(40, 40, 35, 30)), 40));
HOLDS(no_shard_has_to_reach_it, expect(STATES(at(44, 40, 35, 0), at(39, 35, 30, 0)), 35));
HOLDS(a_shard_may_stay_where_its_log_has_brought_it, expect(STATES(at(45, 45, 40, 0), at(45, 40, 35, 0)), 45));
HOLDS(the_order_of_the_shards_does_not_matter,
      expect(STATES(at(40, 40, 35, 30), at(46, 45, 40, 35), at(41, 40, 20, 0)), 40));
HOLDS(the_first_shard_may_be_the_one_without_a_checkpoint_of_it,
      expect(STATES(at(45, 40, 0, 0), at(50, 50, 45, 40)), 45));
HOLDS(with_logs_it_is_where_the_last_shard_is,
      expect(STATES(logged(248, 220, 240, 220), logged(247, 240, 240, 220), logged(245, 240, 240, 220)), 245));
HOLDS(a_log_that_begins_later_leaves_checkpoints_alone,
      expect(STATES(logged(248, 240, 240, 220), logged(239, 220, 220, 200)), 220));
/* Returns a shard at `step` whose WAL has ended, and has the steps from `first` to `last`. */
static pd_shard_state ended(uint64_t step, uint64_t first, uint64_t last, uint64_t a)
{
    pd_shard_state state = logged(step, first, a, first);

    state.last = last;
    return state;
}

HOLDS(the_last_step_of_a_log_that_has_ended_is_within_reach,
      expect(STATES(ended(248, 220, 244, 247), logged(245, 240, 240, 0)), 244));
HOLDS(after_a_log_that_has_ended_there_are_checkpoints_alone,
      expect(STATES(ended(248, 220, 242, 244), logged(245, 240, 240, 0)), 244));
HOLDS(a_shard_without_a_log_has_checkpoints_alone,
      expect(STATES(logged(248, 220, 240, 220), at(243, 240, 220, 0)), 243));
HOLDS(without_a_step_that_all_have_there_is_none, expect_none(STATES(at(400, 400, 300, 200), at(100, 100, 0, 0))));
HOLDS(a_shard_that_has_lost_everything_is_no_obstacle_to_others_at_the_start,
      expect(STATES(at(0, 0, 0, 0), at(0, 0, 0, 0)), 0));

/* Returns a shard at step 9 that reports this durable step. */
static pd_shard_state durable_at(uint64_t durable)
{
    return (pd_shard_state){ .step = 9, .top = 9, .durable = durable };
}

static unsigned first_of(const pd_shard_state *states, size_t n)
{
    unsigned first = 0;

    for (size_t i = 0; i < n; i++) first |= (unsigned)pd_shard_goes_first(states, n, i) << i;
    return first;
}

HOLDS(the_shard_with_the_lowest_durable_step_goes_back_first,
      assert_int_equal(first_of(STATES(durable_at(8), durable_at(5), durable_at(6))), 1 << 1));
HOLDS(shards_with_the_same_durable_step_go_back_together,
      assert_int_equal(first_of(STATES(durable_at(5), durable_at(8), durable_at(5))), 1 << 0 | 1 << 2));

/* Returns a shard at `step` that has model state alone. */
static pd_shard_state free_at(uint64_t step)
{
    return (pd_shard_state){ .step = step, .top = step, .free = true };
}

HOLDS(shards_are_even_at_one_step, assert_true(pd_shards_are_even(STATES(at(4, 0, 0, 0), at(4, 0, 0, 0)), 0)));
HOLDS(shards_may_differ_by_the_slack, assert_true(pd_shards_are_even(STATES(at(4, 0, 0, 0), at(5, 0, 0, 0)), 1)));
HOLDS(shards_that_differ_by_more_are_not_even,
      assert_false(pd_shards_are_even(STATES(at(4, 0, 0, 0), at(5, 0, 0, 0)), 0)));
HOLDS(a_shard_in_the_midst_of_a_step_is_not_even,
      assert_false(pd_shards_are_even((const pd_shard_state[]){ { .step = 4, .top = 5 }, at(4, 0, 0, 0) }, 2, 0)));
HOLDS(a_shard_in_the_midst_of_a_step_needs_a_checkpoint_of_it,
      expect_none((const pd_shard_state[]){ { .step = 4, .top = 5 }, at(4, 0, 0, 0) }, 2));
HOLDS(model_state_alone_may_be_a_step_ahead,
      assert_true(pd_shards_are_even(STATES(free_at(5), at(4, 0, 0, 0), at(4, 0, 0, 0)), 0)));
HOLDS(model_state_alone_may_not_be_further_ahead,
      assert_false(pd_shards_are_even(STATES(free_at(6), at(4, 0, 0, 0)), 0)));
HOLDS(model_state_alone_may_not_be_behind, assert_false(pd_shards_are_even(STATES(free_at(3), at(4, 0, 0, 0)), 0)));
HOLDS(model_state_on_all_shards_is_even, assert_true(pd_shards_are_even(STATES(free_at(3), free_at(9)), 0)));

/* For all small cases: the result is reached by all, and no newer step is. */
TEST(it_is_the_newest_of_all_that_can_be)
{
    for (unsigned bits = 0; bits < 1u << 14; bits++) {
        pd_shard_state states[2] = {
            { .step = bits >> 8 & 3, .top = bits >> 8 & 3, .replays = bits >> 12 & 1, .first = 1 },
            { .step = bits >> 10 & 3, .top = bits >> 10 & 3, .replays = bits >> 13 & 1, .first = 2 }
        };
        uint64_t found = 9, best = 9;

        for (uint64_t step = 4; step-- > 0;)
            for (size_t i = 0; i < 2; i++)
                if (bits >> (4 * i + step) & 1) states[i].kept[states[i].n_kept++] = step;
        for (uint64_t step = 0; step < 4; step++)
            if (step <= states[0].step && step <= states[1].step && pd_shard_state_reaches(&states[0], step) &&
                pd_shard_state_reaches(&states[1], step))
                best = step;
        assert_true(pd_common_step(states, 2, &found) == (best != 9));
        assert_int_equal(found, best);
    }
}

static bool apart(uint64_t a, bool fresh_a, uint64_t b, bool fresh_b, bool settles)
{
    pd_shard_state states[2] = { { .step = a, .top = a, .fresh = fresh_a }, { .step = b, .top = b, .fresh = fresh_b } };

    return !pd_shards_are_even(states, 2, pd_shards_slack(states, 2, settles));
}

HOLDS(shards_at_one_step_are_not_apart, assert_false(apart(5, true, 5, false, true)));
HOLDS(steps_that_are_taken_together_are_not_apart, assert_true(apart(5, false, 6, false, true)));
HOLDS(a_process_that_died_leaves_parameters_one_step_apart, assert_false(apart(5, false, 6, true, false)));
HOLDS(a_shard_that_was_read_may_have_lost_this_step, assert_true(apart(5, true, 6, false, false)));
HOLDS(two_steps_are_too_many, assert_true(apart(5, false, 7, false, false)));
