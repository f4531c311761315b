/* Tests the client's core in jobs where not every rank counts in every step: late answers, steps that are left out,
 * ranks that the server chooses, members, and courses. */
#include "test.h"
#include "notice.h"
#include "peer.h"
#include "window.h"

enum { SMALL = PEER_SMALL, LATE = 5 };

/* Returns a peer whose job has open sets and n parameters of SMALL elements, at step 0. */
static peer *open_peer(const pd_core_config *config, size_t n)
{
    static const int64_t sizes[PEER_ITEMS] = { SMALL, SMALL, SMALL, SMALL };
    peer *p = peer_new(config);
    pd_ticket_id ticket;

    p->open_sets = true;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, n);
    peer_answer_declare(p, n, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Expects that the core pushes n parameters for `step` when the program pushes them next, and answers so. */
static void expect_step(peer *p, size_t n, uint64_t step, uint32_t outcome, uint64_t answered)
{
    pd_ticket_id ticket = peer_push_pull(p, n, SMALL);
    peer_frame l = peer_expect(p, PD_PUSH_PULL);

    assert_int_equal(peer_pushed_step(&l), step);
    peer_answer_step(p, &l, n, outcome, answered);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(after_a_late_answer_the_next_push_is_for_the_step_after_the_one_that_it_names)
{
    peer *p = open_peer(&peer_four, 2);

    expect_step(p, 2, 1, LATE, 5);
    assert_int_equal(p->items[0].outcome, LATE);
    assert_int_equal(p->items[0].step, 5);
    assert_float_equal(p->weights[1][SMALL - 1], 5, 0);
    expect_step(p, 2, 6, 1, 6);
    assert_int_equal(p->items[1].outcome, 1);
    peer_free(p);
}

TEST(what_is_pushed_after_a_late_answer_to_another_parameter_belongs_to_the_same_step)
{
    peer *p = open_peer(&peer_four, 2);
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, 0, &ticket);

    assert_int_equal(peer_pushed_step(&l), 1);
    peer_answer_step(p, &l, 1, LATE, 3);
    l = peer_push_one(p, 1, &ticket);
    assert_int_equal(peer_pushed_step(&l), 1);
    peer_answer_step(p, &l, 1, LATE, 4);
    l = peer_push_one(p, 0, &ticket);
    assert_int_equal(peer_pushed_step(&l), 5); /* no other step is possible for both */
    peer_answer_step(p, &l, 1, 1, 5);
    l = peer_push_one(p, 1, &ticket);
    assert_int_equal(peer_pushed_step(&l), 5);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(pd_client_step_is_the_highest_of_all_parameters)
{
    peer *p = open_peer(&peer_four, 2);
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, 1, &ticket);

    peer_answer_step(p, &l, 1, LATE, 3);
    assert_int_equal(pd_core_step(p->core, 0), 3);
    peer_free(p);
}

TEST(weights_of_an_older_step_are_pulled_again)
{
    peer *p = open_peer(&peer_four, 2);
    const Paramd__PullRequest *pull;
    pd_ticket_id ticket;
    peer_frame first, second, l;

    p->core->max_pieces = 1; /* each parameter gets a frame of its own */
    ticket = peer_push_pull(p, 2, SMALL);
    first = peer_expect(p, PD_PUSH_PULL);
    second = peer_expect(p, PD_PUSH_PULL);
    peer_answer_step(p, &first, 1, LATE, 3);
    peer_answer_step(p, &second, 1, LATE, 4);
    assert_false(pd_core_done(p->core, ticket));
    for (int i = 0; i < 2; i++) {
        l = peer_expect(p, PD_PULL);
        pull = l.message;
        assert_int_equal(pull->min_step, 4);
        peer_answer_step(p, &l, 1, 0, 4);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(p->items[0].outcome, LATE);
    assert_int_equal(p->items[0].step, 4);
    assert_float_equal(p->weights[0][0], 4, 0);
    peer_free(p);
}

TEST(a_push_brings_patience_and_wants_and_gets_age_and_number_of_ranks)
{
    peer *p = open_peer(&peer_four, 1);
    pd_item_count counts[1] = { { 7, 7 } };
    const pd_push_options options = { .patience_ms = 250, .wants = 3, .carried = true, .counts = counts, .speed = 1.5 };
    const Paramd__PushRequest *push;
    pd_ticket_id ticket;
    peer_frame l;

    p->items[0] = (pd_item){ .param = 0, .gradient = p->gradients[0], .weights = p->weights[0] };
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, p->items, 1, &options, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    push = l.message;
    assert_int_equal(push->patience_ms, 250);
    assert_int_equal(push->wants, 3);
    assert_true(push->carried);
    assert_float_equal(push->speed, 1.5, 0);
    assert_int_equal(counts[0].age, 0);
    p->staleness = 2;
    p->counted = 3;
    peer_answer_step(p, &l, 1, 1, 3);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(counts[0].age, 2);
    assert_int_equal(counts[0].counted, 3);
    peer_free(p);
}

TEST(the_members_are_those_of_the_last_answer)
{
    peer *p = open_peer(&peer_four, 1);
    pd_core_members now = pd_core_members_now(p->core);

    assert_int_equal(now.members, 4);
    assert_int_equal(now.index, 2);
    p->members = 3;
    p->index = 2;
    p->epoch = 9;
    expect_step(p, 1, 1, 1, 1);
    now = pd_core_members_now(p->core);
    assert_int_equal(now.members, 3);
    assert_int_equal(now.index, 1);
    assert_int_equal(now.epoch, 9);
    peer_free(p);
}

TEST(the_fastest_worker_is_that_of_the_last_answer_which_names_one)
{
    peer *p = open_peer(&peer_four, 1);

    assert_float_equal(p->core->fastest, 0, 0);
    p->fastest = 3;
    expect_step(p, 1, 1, 1, 1);
    assert_float_equal(p->core->fastest, 3, 0);
    p->fastest = 0;
    expect_step(p, 1, 2, 1, 2);
    assert_float_equal(p->core->fastest, 3, 0);
    peer_free(p);
}

TEST(a_speed_that_cannot_be_is_refused_before_anything_is_sent)
{
    static const double wrong[] = { -1, INFINITY, NAN };
    peer *p = open_peer(&peer_four, 1);
    pd_ticket_id ticket;

    p->items[0] = (pd_item){ .param = 0, .gradient = p->gradients[0], .weights = p->weights[0] };
    for (int i = 0; i < 3; i++) {
        const pd_push_options options = { .speed = wrong[i] };
        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, p->items, 1, &options, &ticket, NULL),
                         PD_INVALID_ARGUMENT);
    }
    peer_expect_silence(p);
    peer_free(p);
}

static pd_core_config any_rank(void)
{
    pd_core_config config = peer_four;

    config.any_rank = true;
    config.rank = 0;
    config.group = 2;
    config.generation = 11;
    return config;
}

TEST(the_servers_choice_of_a_rank_stays_when_the_worker_connects_again)
{
    pd_core_config config = any_rank();
    peer *p = peer_new(&config);
    const Paramd__HelloRequest *hello;
    peer_frame l;

    p->rank = 6;
    p->slots = 8;
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(p->core->welcome.rank, 6);
    assert_int_equal(p->core->welcome.slots, 8);
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_true(hello->any_rank);
    assert_int_equal(hello->rank, 6);
    assert_int_equal(hello->nonce, 77);
    assert_int_equal(hello->group, 2);
    assert_int_equal(hello->generation, 11);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Lets a worker that is rank 6 push step 1, and gives it rank 3 when it connects again. */
TEST(a_worker_that_gets_another_rank_gives_up_what_it_has_pushed)
{
    static const int64_t sizes[] = { SMALL };
    pd_core_config config = any_rank();
    peer *p = peer_new(&config);
    pd_ticket_id ticket;
    peer_frame l;

    p->open_sets = true;
    p->rank = 6;
    p->slots = 8;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    l = peer_push_one(p, 0, &ticket);
    peer_frame_drop(&l);
    p->rank = 3;
    for (int welcomes = 0; welcomes < 2;
         welcomes++) { /* the first one's connection breaks before Declare is answered */
        peer_cut(p);
        peer_connect(p);
        peer_welcome(p);
    }
    peer_answer_declare(p, 1, 0);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    assert_true(p->core->end.gone_back);
    assert_int_equal(p->core->setup.rank, 3);
    peer_free(p);
}

/* Answers a Declare of one parameter without weights. */
static void answer_declare(peer *p, bool must_init)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared has_not = PARAMD__DECLARED__INIT, *one[] = { &has_not };
    peer_frame l = peer_expect(p, PD_DECLARE);

    message.parameters = one;
    message.n_parameters = 1;
    message.must_init = message.sends_whole = must_init;
    message.open_sets = true;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
}

/* Joins as rank 2, which the server has chosen, declares a parameter, and calls pd_core_init. */
static peer *init_as_rank_2(bool must_init, pd_ticket_id *ticket)
{
    static const int64_t sizes[] = { SMALL };
    static float initial[SMALL];
    void *weights[] = { initial };
    pd_core_config config = any_rank();
    peer *p = peer_new(&config);

    p->rank = 2;
    p->slots = 4;
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 1);
    answer_declare(p, must_init);
    assert_int_equal(pd_core_init(p->core, weights, ticket, NULL), PD_OK);
    return p;
}

TEST(the_rank_that_the_server_asks_sends_the_initial_weights_though_it_is_not_rank_0)
{
    pd_ticket_id ticket;
    peer *p = init_as_rank_2(true, &ticket);
    peer_frame l = peer_expect(p, PD_INIT);

    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_rank_that_the_server_has_chosen_and_does_not_ask_sends_no_initial_weights)
{
    pd_ticket_id ticket;
    peer *p = init_as_rank_2(false, &ticket);

    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_expect_silence(p);
    peer_free(p);
}

TEST(a_rank_that_waits_for_initial_weights_sends_its_own_when_the_server_asks_for_them_later)
{
    static float initial[SMALL];
    void *weights[] = { initial };
    pd_ticket_id ticket;
    peer *p = init_as_rank_2(false, &ticket);
    peer_frame l;

    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_fetch(p->core, weights, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    answer_declare(p, true);
    l = peer_expect(p, PD_PULL);
    peer_frame_drop(&l);
    l = peer_expect(p, PD_INIT);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_rank_that_is_asked_again_sends_the_initial_weights_again_that_were_answered)
{
    static const int64_t sizes[] = { 2 * CHUNK };
    static float initial[2 * CHUNK];
    void *weights[] = { initial };
    pd_core_config config = any_rank();
    pd_ticket_id ticket;
    peer *p = peer_new(&config);
    peer_frame l;

    p->slots = 4;
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 1);
    answer_declare(p, true);
    assert_int_equal(pd_core_init(p->core, weights, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_INIT);
    peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    peer_cut(p); /* the rank is lost, and the server forgets what it has sent */
    peer_connect(p);
    peer_welcome(p);
    answer_declare(p, true);
    for (int i = 0; i < 2; i++) {
        assert_false(pd_core_done(p->core, ticket));
        l = peer_expect(p, PD_INIT);
        peer_reply_ok(p, &l.prefix);
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_expect_silence(p);
    peer_free(p);
}

TEST(a_server_that_cannot_choose_a_rank_ends_the_handle)
{
    pd_core_config config = any_rank();
    Paramd__HelloReply reply = PARAMD__HELLO_REPLY__INIT;
    peer *p = peer_new(&config);
    peer_frame l;
    pd_error err;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    reply.protocol = PD_PROTOCOL_VERSION;
    reply.chunk_elements = CHUNK;
    reply.max_pieces = 16;
    assert_int_equal(peer_reply(p, &l.prefix, &reply.base, NULL, 0), PD_FAILED_PRECONDITION);
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "cannot choose a rank"));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(hello_tells_the_steps_of_any_parameter_and_their_course)
{
    peer *p = open_peer(&peer_four, 2);
    const Paramd__HelloRequest *hello;
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, 1, &ticket);

    p->course = 3;
    peer_answer_step(p, &l, 1, 1, 1);
    peer_cut(p);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->steps, 1);
    assert_int_equal(hello->course, 3);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_worker_that_has_seen_no_later_step_takes_over_the_course_of_an_answer)
{
    peer *p = open_peer(&peer_four, 1);

    expect_step(p, 1, 1, 1, 1);
    p->course = 1;
    expect_step(p, 1, 2, 1, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(a_welcome_of_another_course_is_a_rewind_also_if_the_server_is_ahead)
{
    static const uint64_t ahead[] = { 3 };
    peer *p = open_peer(&peer_four, 1);
    pd_ticket_id ticket;
    pd_error err;

    expect_step(p, 1, 1, 1, 1);
    ticket = peer_push_pull(p, 1, SMALL);
    p->course = 1;
    peer_come_back_at(p, ahead, 1);
    assert_int_equal(peer_finish(p, ticket, &err), PD_REWIND);
    assert_non_null(strstr(err.text, "other steps"));
    assert_int_equal(pd_core_rewind(p->core, &ticket, NULL), PD_OK);
    pd_core_down(p->core, p->now, "dropped");
    p->now = pd_core_next(p->core);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 3);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    expect_step(p, 1, 4, 1, 4);
    peer_free(p);
}

static peer *windowed_peer(void)
{
    pd_core_config config = peer_four;

    config.window = 20;
    return open_peer(&config, 1);
}

TEST(a_push_that_counted_later_is_kept_until_that_step_is_durable)
{
    static const uint64_t two[] = { 2 };
    peer *p = windowed_peer();
    peer_frame l;

    expect_step(p, 1, 1, 1, 1);
    p->staleness = 2;
    expect_step(p, 1, 2, 1, 4);
    p->staleness = 0;
    p->durable = 2;
    expect_step(p, 1, 5, 1, 5);
    peer_come_back_at(p, two, 1);
    assert_int_equal(p->core->end.error.code, PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_pushed_step(&l), 2);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_client_waits_for_steps_in_which_it_did_not_count_before_it_sends_later_ones_again)
{
    static const uint64_t back[] = { 1 };
    peer *p = windowed_peer();
    peer_frame l;

    expect_step(p, 1, 1, 1, 1);
    p->durable = 1;
    expect_step(p, 1, 2, LATE, 6);
    expect_step(p, 1, 7, 1, 7);
    peer_come_back_at(p, back, 1);
    assert_int_equal(p->core->end.error.code, PD_OK);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_pushed_step(&l), 2);
    peer_answer_step(p, &l, 1, LATE, 2);
    l = peer_expect(p, PD_PULL);
    assert_int_equal(((const Paramd__PullRequest *)l.message)->min_step, 6);
    peer_expect_silence(p);
    peer_answer_step(p, &l, 1, 0, 6);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_pushed_step(&l), 7);
    peer_answer_step(p, &l, 1, 1, 7);
    expect_step(p, 1, 8, 1, 8);
    peer_free(p);
}

TEST(an_answer_of_another_course_is_a_rewind_if_the_server_has_gone_back)
{
    static const uint64_t back[] = { 0 };
    peer *p = windowed_peer();
    peer_frame l;

    expect_step(p, 1, 1, 1, 1);
    expect_step(p, 1, 2, 1, 2);
    peer_come_back_at(p, back, 1);
    l = peer_expect(p, PD_PUSH_PULL);
    p->course = 1;
    peer_answer_step(p, &l, 1, 1, 1);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

/* Pushes for step 2, which counts in step 3, and ends the step. */
static void push_and_end_step_2(peer *p)
{
    pd_ticket_id ticket, ends;
    peer_frame l = peer_push_one(p, 0, &ticket), last;

    assert_int_equal(pd_core_close_step(p->core, 2, &ends, NULL), PD_OK);
    last = peer_expect(p, PD_PUSH);
    p->staleness = 1;
    peer_answer_step(p, &l, 1, 1, 3);
    p->staleness = 0;
    peer_reply_data(p, &last.prefix, 0, 0, 3, NULL, 0);
    peer_frame_drop(&last);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(peer_finish(p, ends, NULL), PD_OK);
}

TEST(the_end_of_a_step_is_sent_again_with_the_pushes_that_counted_later)
{
    static const uint64_t two[] = { 2 };
    peer *p = windowed_peer();
    peer_frame l;

    expect_step(p, 1, 1, 1, 1);
    push_and_end_step_2(p);
    p->durable = 2;
    expect_step(p, 1, 4, 1, 4);
    peer_come_back_at(p, two, 1);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_pushed_step(&l), 2);
    peer_frame_drop(&l);
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(peer_pushed_step(&l), 2);
    assert_true(((const Paramd__PushRequest *)l.message)->last);
    peer_frame_drop(&l);
    peer_free(p);
}

/* The window keeps two steps. The push for step 2 has left it, and would be needed after a restart from step 2. */
TEST(a_window_that_has_lost_a_push_which_counted_later_does_not_help)
{
    static const uint64_t two[] = { 2 };
    pd_core_config config = peer_four;
    peer *p;

    config.window = 2;
    p = open_peer(&config, 1);
    expect_step(p, 1, 1, 1, 1);
    p->staleness = 1;
    expect_step(p, 1, 2, 1, 3);
    p->staleness = 0;
    expect_step(p, 1, 4, 1, 4);
    peer_come_back_at(p, two, 1);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

/* The parameters' frames of one step: the answer to the first would wait for the second, whose rank owes both. */
TEST(a_client_waits_for_a_step_also_while_another_frame_of_its_next_push_is_under_way)
{
    static const uint64_t back[] = { 6, 5 };
    pd_core_config config = peer_four;
    peer *p;
    peer_frame first, l;

    config.window = 20;
    p = open_peer(&config, 2);
    expect_step(p, 2, 1, LATE, 6);
    p->core->max_pieces = 1; /* each parameter gets a frame of its own */
    peer_push_pull(p, 2, SMALL);
    for (int i = 0; i < 2; i++) {
        l = peer_expect(p, PD_PUSH_PULL);
        peer_answer_step(p, &l, 1, 1, 7);
    }
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    p->core->max_pieces = 1;
    peer_answer_declare_at(p, back, 2);
    l = peer_expect(p, PD_PULL);
    first = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((const Paramd__PushRequest *)first.message)->pieces[0]->handle, 0);
    assert_int_equal(((const Paramd__PullRequest *)l.message)->min_step, 6);
    assert_int_equal(((const Paramd__PullRequest *)l.message)->wants[0]->handle, 1);
    peer_answer_step(p, &l, 1, 0, 6);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((const Paramd__PushRequest *)l.message)->pieces[0]->handle, 1);
    peer_frame_drop(&l);
    peer_frame_drop(&first);
    peer_free(p);
}

/* Pushes parameter 0 only, and ends the step, which is `step`. The job is at step `now` when all its parameters have
 * closed it. */
static void end_step(peer *p, uint64_t step, uint64_t now)
{
    pd_ticket_id ticket, ends;
    peer_frame l = peer_push_one(p, 0, &ticket), last;

    assert_int_equal(pd_core_close_step(p->core, step, &ends, NULL), PD_OK);
    last = peer_expect(p, PD_PUSH);
    peer_answer_step(p, &l, 1, now > step ? LATE : 1, now);
    peer_reply_data(p, &last.prefix, 0, 0, now, NULL, 0);
    peer_frame_drop(&last);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(peer_finish(p, ends, NULL), PD_OK);
}

TEST(the_window_lacks_nothing_of_a_parameter_that_only_the_end_of_late_steps_names)
{
    static const uint64_t back[] = { 1, 1 };
    pd_core_config config = peer_four;
    peer *p;

    config.window = 20;
    p = open_peer(&config, 2);
    end_step(p, 1, 1);
    end_step(p, 2, 5);
    end_step(p, 6, 6);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* Returns a peer with two parameters whose window keeps 20 steps. It has ended step 1, for which it pushed parameter 0
 * only. */
static peer *ended_peer(void)
{
    pd_core_config config = peer_four;
    peer *p;

    config.window = 20;
    p = open_peer(&config, 2);
    end_step(p, 1, 1);
    return p;
}

/* Pulls parameter 1, which the rank never pushes, at a time when others have taken steps without this rank. */
static void pull_of_step(peer *p, uint64_t step)
{
    pd_ticket_id ticket;
    peer_frame l;

    p->items[1] = (pd_item){ .param = 1, .weights = p->weights[1] };
    assert_int_equal(pd_core_pull(p->core, &p->items[1], 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    peer_answer_step(p, &l, 1, 0, step);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
}

TEST(the_window_lacks_nothing_of_steps_that_only_a_pull_has_told_of)
{
    static const uint64_t back[] = { 1, 1 };
    peer *p = ended_peer();

    pull_of_step(p, 4);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(the_window_keeps_all_its_steps_when_a_push_follows_a_pull_of_later_weights)
{
    static const uint64_t back[] = { 0, 0 };
    peer *p = ended_peer();

    pull_of_step(p, 4);
    end_step(p, 5, 5);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(the_window_lacks_nothing_of_steps_that_the_server_has_taken_while_the_connection_was_broken)
{
    static const uint64_t ahead[] = { 4, 4 }, back[] = { 0, 0 };
    peer *p = ended_peer();

    peer_come_back_at(p, ahead, 2);
    end_step(p, 5, 5);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* The end of step 2 may count, though the server ended it with an error: the window cannot send it again. */
TEST(an_end_of_a_step_that_failed_is_a_gap_of_the_parameters_that_only_it_names)
{
    static const uint64_t back[] = { 1, 1 };
    peer *p = ended_peer();
    pd_ticket_id ticket, ends;
    peer_frame l = peer_push_one(p, 0, &ticket), last;

    assert_int_equal(pd_core_close_step(p->core, 2, &ends, NULL), PD_OK);
    last = peer_expect(p, PD_PUSH);
    peer_answer_step(p, &l, 1, 1, 2);
    peer_refuse(p, &last.prefix, PD_DEADLINE_EXCEEDED, "step 2 has waited for long");
    peer_frame_drop(&last);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(peer_finish(p, ends, NULL), PD_DEADLINE_EXCEEDED);
    end_step(p, 3, 3);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

/* Both parameters are in one frame. Its answers name another step than the frame, so they are not compared. */
TEST(a_frame_of_two_parameters_that_counted_later_gets_the_weights_of_both_again)
{
    static const uint64_t back[] = { 1, 1 };
    pd_core_config config = peer_four;
    peer *p;
    peer_frame l;

    config.window = 20;
    p = open_peer(&config, 2);
    expect_step(p, 2, 1, 1, 1);
    p->staleness = 1;
    expect_step(p, 2, 2, 1, 3);
    peer_come_back_at(p, back, 2);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(peer_pushed_step(&l), 2);
    peer_answer_step(p, &l, 2, 1, 3);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

/* The push for step 2 may have counted, though the server ended it with an error. Only the one for step 4 is in the
 * window. */
TEST(a_push_that_ended_with_an_error_is_a_gap_also_if_the_next_one_is_for_a_later_step)
{
    static const uint64_t back[] = { 1, 4 };
    pd_core_config config = peer_four;
    pd_ticket_id ticket;
    peer *p;
    peer_frame l;

    config.window = 20;
    p = open_peer(&config, 2);
    expect_step(p, 2, 1, 1, 1);
    l = peer_push_one(p, 0, &ticket);
    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "step 2 has waited for long");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    l = peer_push_one(p, 1, &ticket);
    peer_answer_step(p, &l, 1, LATE, 3);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    l = peer_push_one(p, 0, &ticket);
    assert_int_equal(peer_pushed_step(&l), 4);
    peer_answer_step(p, &l, 1, 1, 4);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

static peer *two_windowed(void)
{
    pd_core_config config = peer_four;

    config.window = 20;
    return open_peer(&config, 2);
}

TEST(a_push_that_ended_with_an_error_is_a_gap_once_its_step_is_taken)
{
    static const uint64_t back[] = { 0, 0 };
    peer *p = two_windowed();
    pd_ticket_id first, second;
    peer_frame one = peer_push_one(p, 0, &first), other = peer_push_one(p, 1, &second);

    peer_refuse(p, &other.prefix, PD_DEADLINE_EXCEEDED, "step 1 has waited for 1 s");
    assert_int_equal(peer_finish(p, second, NULL), PD_DEADLINE_EXCEEDED);
    peer_answer_step(p, &one, 1, 1,
                     1); /* the program goes on with step 2, so it does not push parameter 1 for step 1 again */
    peer_frame_drop(&other);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

TEST(an_end_of_a_step_that_ended_with_an_error_is_a_gap_once_the_step_is_taken)
{
    static const uint64_t back[] = { 0, 0 };
    peer *p = two_windowed();
    pd_ticket_id first, ends;
    peer_frame one = peer_push_one(p, 0, &first), last;

    assert_int_equal(pd_core_close_step(p->core, 1, &ends, NULL), PD_OK);
    last = peer_expect(p, PD_PUSH);
    peer_refuse(p, &last.prefix, PD_DEADLINE_EXCEEDED, "step 1 has waited for 1 s");
    assert_int_equal(peer_finish(p, ends, NULL), PD_DEADLINE_EXCEEDED);
    peer_answer_step(p, &one, 1, 1, 1);
    peer_frame_drop(&last);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_REWIND);
    peer_free(p);
}

TEST(a_parameter_that_is_not_pushed_yet_is_no_gap)
{
    static const uint64_t back[] = { 0, 0 };
    peer *p = two_windowed();
    pd_ticket_id ticket;
    peer_frame l = peer_push_one(p, 0, &ticket);

    peer_answer_step(p, &l, 1, LATE, 1);
    peer_come_back_at(p, back, 2);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(a_parameter_that_a_failed_end_of_a_step_has_left_out_is_pushed_for_the_next_step)
{
    peer *p = two_windowed();
    pd_ticket_id ticket, ends;
    peer_frame l = peer_push_one(p, 0, &ticket), last;

    assert_int_equal(pd_core_close_step(p->core, 1, &ends, NULL), PD_OK);
    last = peer_expect(p, PD_PUSH);
    peer_refuse(p, &last.prefix, PD_DEADLINE_EXCEEDED, "step 1 has waited for 1 s");
    assert_int_equal(peer_finish(p, ends, NULL), PD_DEADLINE_EXCEEDED);
    peer_frame_drop(&last);
    peer_answer_step(p, &l, 1, 1, 1);
    l = peer_push_one(p, 1, &ticket);
    assert_int_equal(peer_pushed_step(&l),
                     2); /* a push for step 1 would be answered as one that has counted, and be lost */
    peer_frame_drop(&l);
    peer_free(p);
}

/* Lets the server warn of the job, and returns whether rank 2 tells its user. */
static bool tells_warning(peer *p)
{
    pd_prefix nobody = { .method = PD_HEARTBEAT };
    Paramd__Ok ok = PARAMD__OK__INIT;
    char *texts[1] = { "the disk is slow" }, *told;
    bool tells;

    ok.remarks = texts;
    ok.n_remarks = 1;
    peer_reply(p, &nobody, &ok.base, NULL, 0);
    told = pd_core_take_remark(p->core);
    tells = told != NULL;
    if (tells) assert_string_equal(told, texts[0]);
    free(told);
    return tells;
}

TEST(any_rank_tells_warnings_about_a_job_with_open_sets_and_rank_0_those_about_others)
{
    static const int64_t sizes[] = { SMALL };
    peer *p = open_peer(&peer_four, 1);

    assert_true(tells_warning(p));
    peer_free(p);
    p = peer_trained(&peer_four, sizes, 1, 1);
    assert_false(tells_warning(p));
    peer_free(p);
    p = peer_trained(&peer_first, sizes, 1, 1);
    assert_true(tells_warning(p));
    peer_free(p);
}
