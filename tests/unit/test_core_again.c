/* Tests pushes that the program repeats after an error: for which step the client's core sends them, since the first
 * ones may have counted while the worker was disconnected. */
#include "test.h"
#include "peer.h"

enum { PARAMS = 2, SMALL = PEER_SMALL, STEP = 7, LATE = 5 };

/* Returns a peer at STEP whose job has two parameters. */
static peer *trained(bool open_sets)
{
    static const int64_t sizes[PARAMS] = { SMALL, SMALL };
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;

    p->open_sets = open_sets;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    peer_answer_declare(p, PARAMS, STEP);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Pushes one parameter. Returns its frame. */
static peer_frame push(peer *p, size_t param, bool again, pd_ticket_id *ticket)
{
    pd_push_options options = { .again = again };

    p->items[param] = (pd_item){ .param = param, .gradient = p->weights[param], .weights = p->weights[param] };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &p->items[param], 1, &options, ticket, NULL), PD_OK);
    return peer_expect(p, PD_PUSH_PULL);
}

/* Pushes a parameter for STEP + 1. The round misses a rank, so that the push ends with an error. */
static void push_in_vain(peer *p, size_t param)
{
    pd_ticket_id ticket;
    peer_frame l = push(p, param, false, &ticket);

    assert_int_equal(peer_pushed_step(&l), STEP + 1);
    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
}

/* Pushes a parameter, and expects the step that the push is for. Answers with the outcome of that step or a later
 * one. */
static void expect_push(peer *p, size_t param, bool again, uint64_t step, uint32_t outcome, uint64_t answered)
{
    pd_ticket_id ticket;
    peer_frame l = push(p, param, again, &ticket);

    assert_int_equal(peer_pushed_step(&l), step);
    peer_answer_step(p, &l, 1, outcome, answered);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(p->items[param].outcome, outcome);
    assert_int_equal(p->items[param].step, answered);
}

/* Lets the worker's connection break, and the server close `step` meanwhile. */
static void be_away(peer *p, uint64_t step)
{
    const uint64_t steps[PARAMS] = { step, step };

    peer_come_back_at(p, steps, PARAMS);
}

static void expect_its_step(bool open_sets)
{
    peer *p = trained(open_sets);

    push_in_vain(p, 0);
    be_away(p, STEP + 1);
    expect_push(p, 0, true, STEP + 1, 1, STEP + 1);
    expect_push(p, 0, false, STEP + 2, 1, STEP + 2);
    peer_free(p);
}

HOLDS(a_push_that_counted_while_its_worker_was_away_is_repeated_for_its_step, expect_its_step(false));
HOLDS(a_push_of_a_job_with_open_sets_is_repeated_for_its_step, expect_its_step(true));

TEST(a_push_that_did_not_count_while_its_worker_was_away_is_told_so)
{
    peer *p = trained(true);

    push_in_vain(p, 0);
    be_away(p, STEP + 3);
    expect_push(p, 0, true, STEP + 1, LATE, STEP + 3);
    expect_push(p, 0, false, STEP + 4, 1, STEP + 4);
    peer_free(p);
}

TEST(a_program_that_goes_on_pushes_for_the_next_step)
{
    peer *p = trained(false);

    push_in_vain(p, 0);
    be_away(p, STEP + 1);
    expect_push(p, 0, false, STEP + 2, 1, STEP + 2);
    peer_free(p);
}

TEST(a_push_of_a_step_that_is_still_open_is_repeated_for_that_step)
{
    peer *p = trained(false);

    push_in_vain(p, 0);
    expect_push(p, 0, true, STEP + 1, 1, STEP + 1);
    peer_free(p);
}

TEST(each_parameter_is_pushed_again_for_its_own_step)
{
    peer *p = trained(false);

    expect_push(p, 0, false, STEP + 1, 1, STEP + 1);
    push_in_vain(p, 1);
    be_away(p, STEP + 1);
    expect_push(p, 1, true, STEP + 1, 1, STEP + 1);
    expect_push(p, 0, false, STEP + 2, 1, STEP + 2);
    expect_push(p, 1, false, STEP + 2, 1, STEP + 2);
    peer_free(p);
}

TEST(a_push_that_repeats_none_is_for_the_next_step)
{
    peer *p = trained(false), *open = trained(true);

    expect_push(p, 0, true, STEP + 1, 1, STEP + 1);
    expect_push(open, 0, true, STEP + 1, 1, STEP + 1);
    peer_free(p);
    peer_free(open);
}
