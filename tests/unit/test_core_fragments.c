/* Tests the client's core in jobs whose parameters are in several fragments: steps and shares of each. */
#include "test.h"
#include "leased.h"
#include "peer.h"
#include "replace.h"

enum { SMALL = PEER_SMALL, LATE = 5 };

/* Returns a peer whose job has open sets and two parameters, each in a fragment of its own, at step 0. */
static peer *peer_of_two_fragments(void)
{
    static const pd_client_param params[2] = { { .name = "p0", .shape = { 1, { SMALL } } },
                                               { .name = "p1", .shape = { 1, { SMALL } }, .fragment = 1 } };
    pd_core_config config = peer_four;
    pd_ticket_id ticket;
    pd_error err;
    peer *p;

    config.window = 20;
    p = peer_new(&config);
    p->open_sets = true;
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, params, 2, &ticket, &err), PD_OK);
    peer_answer_declare(p, 2, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Pushes one parameter, and checks for which step it is pushed. */
static void take_one(peer *p, size_t param, uint64_t step)
{
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, param, &ticket);

    assert_int_equal(peer_pushed_step(&l), step);
    peer_answer_step(p, &l, 1, 1, step);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(each_fragment_is_pushed_for_its_own_step)
{
    peer *p = peer_of_two_fragments();

    take_one(p, 0, 1);
    take_one(p, 0, 2);
    take_one(p, 1, 1);
    take_one(p, 0, 3);
    take_one(p, 1, 2);
    assert_int_equal(pd_core_step(p->core, 0), 3);
    assert_int_equal(pd_core_step(p->core, 1), 2);
    peer_free(p);
}

TEST(a_push_of_two_fragments_is_refused)
{
    peer *p = peer_of_two_fragments();
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < 2; i++)
        p->items[i] = (pd_item){ .param = i, .gradient = p->gradients[i], .weights = p->weights[i] };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, p->items, 2, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "push each fragment in a call of its own"));
    take_one(p, 0, 1); /* nothing has changed */
    peer_free(p);
}

TEST(a_worker_that_comes_back_tells_the_steps_of_each_fragment)
{
    peer *p = peer_of_two_fragments();
    const Paramd__HelloRequest *hello;
    peer_frame l;

    take_one(p, 0, 1);
    take_one(p, 0, 2);
    take_one(p, 1, 1);
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->steps, 2);
    assert_int_equal(hello->n_fragment_steps, 1);
    assert_int_equal(hello->fragment_steps[0], 1);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(shares_belong_to_the_pushes_of_fragment_0)
{
    const pd_push_options options = { .wants = 1 };
    peer *p = peer_of_two_fragments();
    pd_ticket_id ticket;
    uint64_t share;
    peer_frame l;

    p->core->setup.shares = 1;
    p->core->shares = (pd_core_shares){ .ranges = { { .first = 5, .count = 1 } }, .n = 1 };
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &share, NULL), PD_OK);
    for (size_t i = 2; i-- > 0;) {
        p->items[i] = (pd_item){ .param = i, .gradient = p->gradients[i], .weights = p->weights[i] };
        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &p->items[i], 1, &options, &ticket, NULL), PD_OK);
        l = peer_expect(p, PD_PUSH_PULL);
        assert_int_equal(((const Paramd__PushRequest *)l.message)->share, i == 0 ? 6 : 0);
        peer_answer_step(p, &l, 1, LATE, 1);
        assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
        /* Data of a late push of fragment 0 are taken again. */
        assert_int_equal(p->core->shares.taken, i == 0 ? 0 : 1);
    }
    peer_free(p);
}

TEST(where_all_ranks_count_shares_follow_the_steps_of_fragment_0)
{
    peer *p = peer_of_two_fragments();
    uint64_t share;

    p->core->open_sets = false;
    p->core->setup.shares = 1;
    take_one(p, 0, 1);
    assert_int_equal(pd_core_least_unused(p->core, pd_leased_taken_step(p->core)), p->core->setup.world_size);
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &share, NULL), PD_OK);
    assert_int_equal(share, p->core->setup.world_size + p->core->setup.rank);
    peer_free(p);
}

TEST(a_push_that_ended_with_an_error_is_no_gap_while_its_own_fragment_has_not_taken_the_step)
{
    static const uint64_t back[] = { 2, 0 };
    peer *p = peer_of_two_fragments();
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, 1, &ticket);

    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "step 1 has waited for 1 s");
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    peer_frame_drop(&l);
    for (uint64_t step = 1; step <= 3; step++) take_one(p, 0, step);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* Ends a step. Returns the code of the call, or of the answer, which is that the step is taken. */
static int end_step(peer *p, uint64_t step, pd_error *err)
{
    pd_ticket_id ticket;
    peer_frame l;
    int rc = pd_core_close_step(p->core, step, &ticket, err);

    if (rc != PD_OK) return rc;
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(peer_reply_data(p, &l.prefix, 0, 0, 0, NULL, 0), PD_OK);
    peer_frame_drop(&l);
    return peer_finish(p, ticket, err);
}

TEST(a_step_is_ended_in_all_fragments_that_have_not_taken_it)
{
    peer *p = peer_of_two_fragments();
    pd_error err;

    assert_int_equal(end_step(p, 1, &err), PD_OK);
    take_one(p, 0, 2);
    assert_int_equal(end_step(p, 2, &err), PD_OK);
    assert_int_equal(pd_core_step(p->core, 1), 2);
    peer_free(p);
}

TEST(a_step_that_some_fragment_cannot_take_yet_is_not_ended)
{
    peer *p = peer_of_two_fragments();
    pd_error err;

    take_one(p, 0, 1);
    take_one(p, 0, 2);
    assert_int_equal(end_step(p, 2, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "step 2 cannot be closed, since fragment 1 has taken step 0"));
    peer_expect_silence(p);
    take_one(p, 1, 1);
    assert_int_equal(end_step(p, 2, &err), PD_OK);
    peer_free(p);
}

/* ---- weights that are changed by hand ---- */

enum { NUMBER = 77 };

static int try_replace(peer *p, size_t n, pd_ticket_id *ticket, pd_error *err)
{
    pd_item items[2];

    for (size_t i = 0; i < n; i++) items[i] = (pd_item){ .param = i, .weights = p->weights[i] };
    return pd_core_replace(p->core, items, n, NUMBER, ticket, err);
}

/* Expects new weights of a parameter, as those of `step`, and of `whole` parameters in all. */
static void expect_weights(peer *p, uint32_t param, uint64_t step, uint32_t whole)
{
    peer_frame l = peer_expect(p, PD_INIT);
    const Paramd__InitRequest *init = l.message;

    assert_int_equal(init->n_pieces, 1);
    assert_int_equal(init->pieces[0]->handle, param);
    assert_int_equal(init->step, step);
    assert_int_equal(init->whole, whole);
    assert_int_equal(init->replaces, NUMBER);
    peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
}

/* Pushes a parameter, and returns the number of the change that the push brings. */
static uint64_t number_of_push(peer *p, size_t param, uint64_t step)
{
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, param, &ticket);
    uint64_t number = ((const Paramd__PushRequest *)l.message)->replaces;

    peer_answer_step(p, &l, 1, 1, step);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return number;
}

TEST(weights_of_fragments_at_different_steps_are_replaced_together)
{
    peer *p = peer_of_two_fragments();
    pd_ticket_id ticket;
    pd_error err;

    take_one(p, 0, 1);
    take_one(p, 0, 2);
    take_one(p, 1, 1);
    assert_int_equal(try_replace(p, 2, &ticket, &err), PD_OK);
    expect_weights(p, 0, 2, 2);
    expect_weights(p, 1, 1, 2);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(number_of_push(p, 1, 2), NUMBER);
    assert_int_equal(number_of_push(p, 1, 3), 0);
    assert_int_equal(number_of_push(p, 0, 3), NUMBER);
    assert_int_equal(number_of_push(p, 0, 4), 0);
    peer_free(p);
}

TEST(weights_are_sent_again_as_those_of_the_steps_of_their_fragments)
{
    static const uint64_t steps[] = { 2, 1 };
    peer *p = peer_of_two_fragments();
    pd_ticket_id ticket;
    pd_error err;

    take_one(p, 0, 1);
    take_one(p, 0, 2);
    take_one(p, 1, 1);
    assert_int_equal(try_replace(p, 2, &ticket, &err), PD_OK);
    expect_weights(p, 0, 2, 2);
    peer_come_back_at(p, steps, 2);
    expect_weights(p, 0, 2, 2);
    expect_weights(p, 1, 1, 2);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(a_push_of_another_fragment_does_not_stop_weights_from_being_replaced)
{
    peer *p = peer_of_two_fragments();
    pd_ticket_id pushed, replaced;
    pd_error err;
    peer_frame l = peer_push_one(p, 1, &pushed);

    assert_int_equal(try_replace(p, 2, &replaced, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(try_replace(p, 1, &replaced, &err), PD_OK);
    expect_weights(p, 0, 0, 1);
    assert_int_equal(peer_finish(p, replaced, NULL), PD_OK);
    peer_answer_step(p, &l, 1, 1, 1);
    assert_int_equal(peer_finish(p, pushed, NULL), PD_OK);
    assert_int_equal(number_of_push(p, 1, 2), 0);
    assert_int_equal(number_of_push(p, 0, 1), NUMBER);
    peer_free(p);
}
