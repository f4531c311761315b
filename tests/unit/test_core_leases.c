/* Tests which shares the client's core hands to the program, as the server leases them. */
#include "test.h"
#include "leased.h"
#include "peer.h"

enum { SMALL = 4, STEPPED = 1, LATE = 5 };

/* Returns a peer whose job has open sets and one parameter, at step 0, and to which one share is leased. */
static peer *leased_peer(uint64_t first)
{
    static const int64_t sizes[] = { SMALL };
    pd_core_config config = peer_four;
    pd_ticket_id ticket;
    peer *p;

    config.shares = 1;
    p = peer_new(&config);
    p->open_sets = true;
    p->lease_first = first;
    p->lease_count = 1;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Expects that the next share is this one, and that it is the last of the leases. */
static void expect_share(peer *p, uint64_t expected)
{
    uint64_t share;

    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &share, NULL), PD_OK);
    assert_int_equal(share, expected);
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &share, NULL), PD_UNAVAILABLE);
}

/* Answers the worker's next push with the step and outcome, and with the leases of the peer. */
static void push(peer *p, uint32_t outcome, uint64_t step)
{
    float weights[SMALL] = { 0 };
    pd_ticket_id ticket = peer_push_pull(p, 1, SMALL);
    peer_frame frame = peer_expect(p, PD_PUSH_PULL);

    assert_int_equal(peer_reply_data(p, &frame.prefix, 1, outcome, step, weights, SMALL), PD_OK);
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(the_answer_to_a_push_that_counted_brings_other_shares)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    p->lease_first = 9;
    push(p, STEPPED, 1);
    expect_share(p, 9);
    peer_free(p);
}

TEST(after_a_late_push_the_same_shares_are_taken_again)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    push(p, LATE, 1);
    expect_share(p, 5);
    peer_free(p);
}

/* Ends the worker's step, to which it has given nothing, and answers with the leases of the peer. */
static void end_step(peer *p, uint64_t step)
{
    pd_ticket_id ticket;
    peer_frame frame;

    assert_int_equal(pd_core_close_step(p->core, step, &ticket, NULL), PD_OK);
    frame = peer_expect(p, PD_PUSH);
    assert_int_equal(peer_reply_data(p, &frame.prefix, 0, 0, 0, NULL, 0), PD_OK);
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(shares_of_an_end_of_a_step_that_came_too_late_are_taken_again)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    end_step(p, 1);
    expect_share(p, 5);
    peer_free(p);
}

TEST(the_end_of_a_step_that_counted_gives_no_shares_back)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    p->lease_first = 9;
    push(p, STEPPED, 1);
    expect_share(p, 9);
    end_step(p, 1);
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &(uint64_t){ 0 }, NULL),
                     PD_UNAVAILABLE);
    peer_free(p);
}

/* Lets the connection break while a push for step 1 is under way. The server leases `count` shares from
 * `first` on after that, and has closed `step`. */
static peer *come_back(pd_ticket_id *ticket, uint64_t first, uint64_t count, uint64_t step)
{
    peer *p = leased_peer(5);
    peer_frame frame;

    expect_share(p, 5);
    *ticket = peer_push_pull(p, 1, SMALL);
    frame = peer_expect(p, PD_PUSH_PULL);
    peer_frame_drop(&frame);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    p->lease_first = first;
    p->lease_count = count;
    peer_answer_declare(p, 1, step);
    return p;
}

TEST(a_push_that_is_answered_after_a_reconnect_does_not_give_its_shares_back)
{
    float weights[SMALL] = { 0 };
    pd_ticket_id ticket;
    peer *p = come_back(&ticket, 9, 1, 1);
    peer_frame frame = peer_expect(p, PD_PUSH_PULL);

    expect_share(p, 9);
    assert_int_equal(peer_reply_data(p, &frame.prefix, 1, STEPPED, 1, weights, SMALL), PD_OK);
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &(uint64_t){ 0 }, NULL),
                     PD_UNAVAILABLE);
    peer_free(p);
}

TEST(a_push_that_is_sent_again_names_the_share_that_it_was_made_of)
{
    pd_ticket_id ticket;
    peer *p = come_back(&ticket, 9, 1, 1);
    peer_frame frame = peer_expect(p, PD_PUSH_PULL);

    assert_true(((Paramd__PushRequest *)frame.message)->share == 1 + 5);
    peer_frame_drop(&frame);
    peer_free(p);
}

/* The worker was removed while it was away, and others have got the rest of its lease: its share begins another one. */
TEST(a_push_that_is_sent_again_names_no_share_that_begins_another_lease_now)
{
    pd_ticket_id ticket;
    peer *p = come_back(&ticket, 5, 2, 1);
    peer_frame frame = peer_expect(p, PD_PUSH_PULL);

    assert_true(((Paramd__PushRequest *)frame.message)->share == UINT64_MAX);
    peer_frame_drop(&frame);
    peer_free(p);
}

TEST(a_push_of_shares_that_others_may_have_got_is_given_up)
{
    pd_ticket_id ticket;
    peer *p = come_back(&ticket, 9, 1, 0);

    assert_int_equal(p->core->end.error.code, PD_REWIND);
    assert_true(p->core->end.gone_back);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_REWIND);
    peer_free(p);
}

/* Expects that the worker's next push says that it is made of this share. */
static void expect_named(peer *p, uint64_t share)
{
    peer_frame frame;

    (void)peer_push_pull(p, 1, SMALL);
    frame = peer_expect(p, PD_PUSH_PULL);
    assert_true(((Paramd__PushRequest *)frame.message)->share == share);
    peer_frame_drop(&frame);
}

/* Lets the connection break while the program computes. The server leases `count` shares from `first` on then. */
static peer *come_back_with(uint64_t first, uint64_t count)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    p->lease_first = first;
    p->lease_count = count;
    peer_answer_declare(p, 1, 0);
    return p;
}

TEST(shares_that_are_lost_while_the_program_computes_end_its_step)
{
    peer *p = come_back_with(9, 1);

    assert_int_equal(p->core->end.error.code, PD_REWIND);
    assert_true(p->core->end.gone_back);
    peer_free(p);
}

TEST(a_push_names_no_share_if_the_program_has_taken_none_since_the_last_one_counted)
{
    peer *p = leased_peer(5);

    expect_share(p, 5);
    p->lease_first = 9;
    push(p, STEPPED, 1);
    expect_named(p, 0);
    peer_free(p);
}

TEST(a_push_whose_share_begins_another_lease_now_is_given_up)
{
    pd_ticket_id ticket;
    peer *p = come_back(&ticket, 5, 2, 0);

    assert_int_equal(p->core->end.error.code, PD_REWIND);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_REWIND);
    peer_free(p);
}

/* ---- shares that others have got ---- */

/* Answers the push under way with LATE, and with the leases of the peer. */
static void answer_late(peer *p, uint64_t step, pd_ticket_id ticket)
{
    float weights[SMALL] = { 0 };
    peer_frame frame = peer_expect(p, PD_PUSH_PULL);

    assert_int_equal(peer_reply_data(p, &frame.prefix, 1, LATE, step, weights, SMALL), PD_OK);
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

/* Pushes the gradient of the only parameter, and wants to know whether its shares are lost. */
static pd_ticket_id push_asking(peer *p, bool again, bool *lost)
{
    static float gradient[SMALL], weights[SMALL];
    static pd_item item;
    pd_push_options options = { .again = again, .lost = lost };
    pd_ticket_id ticket;

    *lost = false;
    item = (pd_item){ .gradient = gradient, .weights = weights };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, &item, 1, &options, &ticket, NULL), PD_OK);
    return ticket;
}

/* Connects anew. The server has closed `step`, and leases `count` shares from `first` on. */
static void come_again(peer *p, uint64_t first, uint64_t count, uint64_t step)
{
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    p->lease_first = first;
    p->lease_count = count;
    peer_answer_declare(p, 1, step);
}

TEST(a_late_push_whose_shares_the_worker_still_has_is_not_lost)
{
    peer *p = leased_peer(5);
    bool lost;

    expect_share(p, 5);
    answer_late(p, 1, push_asking(p, false, &lost));
    assert_false(lost);
    peer_free(p);
}

static void expect_lost(uint64_t first, uint64_t count)
{
    peer *p = leased_peer(5);
    pd_ticket_id ticket;
    bool lost;

    expect_share(p, 5);
    ticket = push_asking(p, false, &lost);
    come_again(p, first, count, 1);
    answer_late(p, 1, ticket);
    assert_true(lost);
    peer_free(p);
}

HOLDS(a_late_push_whose_shares_others_have_got_is_lost, expect_lost(9, 1));
HOLDS(a_late_push_whose_share_begins_another_lease_now_is_lost, expect_lost(5, 2));

TEST(a_push_that_counted_while_its_worker_was_away_is_not_lost)
{
    float weights[SMALL] = { 0 };
    peer *p = leased_peer(5);
    pd_ticket_id ticket;
    peer_frame frame;
    bool lost;

    expect_share(p, 5);
    ticket = push_asking(p, false, &lost);
    come_again(p, 9, 1, 1);
    frame = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_reply_data(p, &frame.prefix, 1, STEPPED, 1, weights, SMALL), PD_OK);
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_false(lost);
    peer_free(p);
}

/* Returns a peer whose push, of share 5, has ended with an error. */
static peer *refused_peer(void)
{
    peer *p = leased_peer(5);
    pd_ticket_id ticket;
    peer_frame frame;
    bool lost;

    expect_share(p, 5);
    ticket = push_asking(p, false, &lost);
    frame = peer_expect(p, PD_PUSH_PULL);
    peer_refuse(p, &frame.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&frame);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    return p;
}

/* Repeats the push, and expects that it names this share. */
static void expect_repeated(peer *p, uint64_t share)
{
    bool lost;
    peer_frame frame;

    (void)push_asking(p, true, &lost);
    frame = peer_expect(p, PD_PUSH_PULL);
    assert_true(((Paramd__PushRequest *)frame.message)->share == share);
    peer_frame_drop(&frame);
}

TEST(a_push_that_is_repeated_names_the_share_that_it_was_made_of)
{
    peer *p = refused_peer();

    p->core->shares.named = 0; /* the answer to another push has said that one has counted */
    expect_repeated(p, 1 + 5);
    peer_free(p);
}

TEST(a_push_that_is_repeated_names_no_share_that_begins_another_lease_now)
{
    peer *p = refused_peer();

    come_again(p, 5, 2, 1);
    expect_repeated(p, UINT64_MAX);
    peer_free(p);
}

/* ---- several shares, several answers ---- */

enum { PARAMS = 2 };

/* Returns a peer as leased_peer does, with two parameters and `count` shares. */
static peer *wide_peer(uint64_t first, uint64_t count)
{
    static const int64_t sizes[PARAMS] = { SMALL, SMALL };
    pd_core_config config = peer_four;
    pd_ticket_id ticket;
    peer *p;

    config.shares = (uint32_t)count;
    p = peer_new(&config);
    p->open_sets = true;
    p->lease_first = first;
    p->lease_count = count;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, PARAMS);
    peer_answer_declare(p, PARAMS, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

static uint64_t take(peer *p)
{
    uint64_t share;

    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &share, NULL), PD_OK);
    return share;
}

TEST(the_second_late_answer_to_a_push_gives_no_share_back_that_was_taken_after_the_first)
{
    peer *p = wide_peer(5, 2);
    pd_ticket_id first, second;
    peer_frame frames[PARAMS];

    assert_int_equal(take(p), 5);
    assert_int_equal(take(p), 6);
    frames[0] = peer_push_one(p, 0, &first);
    frames[1] = peer_push_one(p, 1, &second);
    peer_answer_step(p, &frames[0], 1, LATE, 1);
    assert_int_equal(take(p), 5);
    peer_answer_step(p, &frames[1], 1, LATE, 1);
    assert_int_equal(take(p), 6);
    assert_int_equal(pd_core_take_share(p->core, pd_leased_taken_step(p->core), &(uint64_t){ 0 }, NULL),
                     PD_UNAVAILABLE);
    peer_free(p);
}

TEST(a_worker_that_carries_its_data_over_takes_the_further_shares)
{
    Paramd__Lease own = PARAMD__LEASE__INIT, further = PARAMD__LEASE__INIT, *leases[] = { &own, &further };
    Paramd__DataReply reply = PARAMD__DATA_REPLY__INIT;
    peer *p = wide_peer(5, 2);
    pd_outgoing_frame frame = { .id = ++p->core->calls.last_id, .step = 1 };

    own.first = 5;
    further.first = 9;
    own.count = further.count = reply.n_leases = 2;
    reply.leases = leases;
    assert_int_equal(take(p), 5);
    assert_int_equal(take(p), 6);
    pd_leased_answered(p->core, &frame, true, &reply);
    assert_int_equal(take(p), 9);
    pd_leased_answered(p->core, &frame, true, &reply); /* another frame of the push */
    assert_int_equal(take(p), 10);
    assert_true(pd_leased_taken(p->core) == 1 + 5);
    frame.id = ++p->core->calls.last_id;
    pd_leased_answered(p->core, &frame, true, &reply); /* of the next push: nothing further was leased */
    assert_int_equal(take(p), 9);
    peer_free(p);
}

TEST(a_rank_counts_the_steps_of_parameters_of_which_it_has_elements)
{
    pd_core_config config = peer_four;
    peer *p;

    config.shares = 2;
    p = peer_trained(&config, (const int64_t[]){ SMALL, SMALL }, PARAMS, 1);
    assert_int_equal(take(p), (1 * (uint64_t)config.world_size + config.rank) * 2);
    p->core->params[0].step = 2;
    p->core->params[1].end = p->core->params[1].start;
    assert_int_equal(take(p), (2 * (uint64_t)config.world_size + config.rank) * 2);
    peer_free(p);
}
