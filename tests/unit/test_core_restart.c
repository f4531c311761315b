/* Tests the client's core with a server that restarted and has lost the job. The client either ends with an error
 * that names this reason, or creates the job again. */
#include "test.h"
#include "peer.h"

enum { PARAMS = 2, ELEMENTS = 3, STEP = 7 };
static const int64_t sizes[PARAMS] = { ELEMENTS, ELEMENTS };
/* Returns a worker whose job is at step STEP. */
static peer *trained(const pd_core_config *config)
{
    return peer_trained(config, sizes, PARAMS, STEP);
}

static pd_ticket_id push(peer *p)
{
    return peer_push_pull(p, PARAMS, ELEMENTS);
}

static const Paramd__HelloRequest *expect_hello(peer *p, peer_frame *l)
{
    *l = peer_expect(p, PD_HELLO);
    return l->message;
}

static const char *option(const Paramd__HelloRequest *hello, const char *name)
{
    for (size_t i = 0; i < hello->n_options; i++)
        if (strcmp(hello->options[i]->name, name) == 0) return hello->options[i]->value;
    return NULL;
}

/* Breaks the connection. On the next connection the server says that it has no such job. */
static void refuse_as_unknown(peer *p)
{
    peer_frame l;

    peer_cut(p);
    peer_connect(p);
    assert_true(expect_hello(p, &l)->rejoins);
    peer_refuse(p, &l.prefix, PD_NOT_FOUND, "there is no job job");
    peer_frame_drop(&l);
}

static void expect_lost(peer *p, pd_ticket_id pending)
{
    pd_ticket_id ticket;
    pd_error err;

    assert_true(p->core->end.lost);
    assert_int_equal(peer_finish(p, pending, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "no longer has job job"));
    assert_non_null(strstr(err.text, "after step 7"));
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_DATA_LOSS);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_link(p->core, UINT64_MAX), PD_LINK_REST);
    assert_int_equal(pd_core_step(p->core, 0), STEP);
}

static peer *lost(const pd_core_config *config)
{
    peer *p = trained(config);
    pd_ticket_id ticket = push(p);

    refuse_as_unknown(p);
    expect_lost(p, ticket);
    return p;
}

static pd_ticket_id restart(peer *p)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_recreate(p->core, 0, &ticket, NULL), PD_OK);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
    return ticket;
}

HOLDS(a_server_without_the_job_ends_the_handle, peer_free(lost(&peer_four)));

TEST(a_job_that_another_process_created_is_not_the_same)
{
    peer *p = trained(&peer_four);
    pd_ticket_id ticket = push(p);

    p->creator = 1001;
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    expect_lost(p, ticket);
    peer_free(p);
}

/* Answers Declare: the server has no weights, and waits for those of another rank. */
static void answer_without_weights(peer *p)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one };
    peer_frame l = peer_expect(p, PD_DECLARE);

    one.step = STEP;
    message.parameters = all;
    message.n_parameters = PARAMS;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
}

TEST(a_job_without_weights_is_not_the_same)
{
    peer *p = trained(&peer_four);
    pd_ticket_id ticket = push(p);

    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    answer_without_weights(p);
    expect_lost(p, ticket);
    peer_free(p);
}

TEST(the_same_job_goes_on)
{
    peer *p = trained(&peer_four);
    peer_frame l;

    push(p);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP);
    l = peer_expect(p, PD_PUSH_PULL);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Sends an answer to a pull of both parameters, and the weights of the first one alone. */
static void begin_answer(peer *p, const peer_frame *l)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[PARAMS] = { &one, &one };
    float weights[(64 + ELEMENTS * sizeof(float)) / sizeof(float)] = { 0 };
    struct iovec iov = { weights, sizeof weights };
    uint8_t *frame;
    size_t bytes;

    message.outcomes = all;
    message.n_outcomes = PARAMS;
    assert_int_equal(pd_frame_pack(&frame, &bytes, l->prefix.method, PD_FLAG_REPLY, l->prefix.request, &message.base,
                                   &iov, 1, sizeof weights),
                     PD_OK);
    assert_int_equal(peer_feed(p, frame, bytes), PD_OK);
    assert_int_equal(peer_feed(p, (uint8_t *)weights, ELEMENTS * sizeof *weights), PD_OK);
    free(frame);
}

/* Its buffers have some of the job's weights. If it created the job again, it would begin with a mixture. */
TEST(a_process_that_has_begun_to_receive_weights_does_not_create_the_job_again)
{
    peer *p = peer_new(&peer_four);
    void *weights[PARAMS] = { p->weights[0], p->weights[1] };
    pd_ticket_id ticket;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, PARAMS);
    answer_without_weights(p);
    assert_int_equal(pd_core_fetch(p->core, weights, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    begin_answer(p, &l);
    peer_frame_drop(&l);
    refuse_as_unknown(p);
    assert_true(p->core->end.lost);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DATA_LOSS);
    peer_free(p);
}

/* The job had no weights before the server was restarted, so nothing is lost. The client creates the job again, as
 * on its first connection. */
TEST(a_process_without_weights_creates_the_job_again)
{
    peer *p = peer_new(&peer_four);
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, PARAMS);
    l = peer_expect(p, PD_DECLARE);
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    assert_false(expect_hello(p, &l)->rejoins);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Answers Declare: the server has no weights of the n parameters, and waits for this rank's. */
static void ask_for_weights(peer *p, size_t n)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one };
    peer_frame l = peer_expect(p, PD_DECLARE);

    assert_true(n <= PARAMS);
    message.parameters = all;
    message.n_parameters = n;
    message.must_init = true;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
}

/* Returns rank 0, which has to send the initial weights of a tensor of two chunks. Two frames of Init are queued. */
static peer *initialising(pd_ticket_id *ticket)
{
    static const int64_t two_chunks[] = { 2 * CHUNK };
    peer *p = peer_new(&peer_first);
    void *const initial[] = { p->weights[0] };

    p->creator = 1000;
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, two_chunks, 1);
    ask_for_weights(p, 1);
    assert_int_equal(pd_core_init(p->core, initial, ticket, NULL), PD_OK);
    return p;
}

/* Takes the core's next frame with initial weights, and answers it if `ok`. Returns its first element. */
static uint64_t take_init(peer *p, bool ok)
{
    peer_frame l = peer_expect(p, PD_INIT);
    uint64_t first = ((Paramd__InitRequest *)l.message)->pieces[0]->first;

    if (ok) peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    return first;
}

TEST(initial_weights_that_were_stored_can_be_lost_too)
{
    pd_ticket_id ticket;
    peer *p = initialising(&ticket);

    take_init(p, true);
    take_init(p, true);
    refuse_as_unknown(p);
    assert_true(p->core->end.lost);
    peer_free(p);
}

/* The server was started anew in the middle of the initial weights. Another rank, which had sent none, has created the
 * job again: that job will never get the chunk that the first one has answered, so the user must begin again. */
TEST(a_part_of_the_initial_weights_can_be_lost_with_its_job)
{
    pd_ticket_id ticket;
    peer *p = initialising(&ticket);
    pd_error err;

    take_init(p, true);
    p->creator++;
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    assert_true(p->core->end.lost);
    assert_int_equal(peer_finish(p, ticket, &err), PD_DATA_LOSS);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_recreate(p->core, 0, &ticket, NULL), PD_OK);
    peer_free(p);
}

/* Returns whether the core's Hello may create the job. Welcomes it. */
static bool comes_to_create(peer *p)
{
    peer_frame l;
    bool creates;

    peer_cut(p);
    peer_connect(p);
    creates = !expect_hello(p, &l)->rejoins;
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    return creates;
}

TEST(a_rank_whose_initial_weights_had_no_answer_sends_all_of_them_to_the_new_job)
{
    pd_ticket_id ticket;
    peer *p = initialising(&ticket);

    take_init(p, false);
    p->creator++;
    assert_true(comes_to_create(p));
    ask_for_weights(p, 1);
    assert_int_equal(take_init(p, true), 0);
    assert_int_equal(take_init(p, true), CHUNK);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    peer_free(p);
}

TEST(rank_0_creates_the_job_at_its_lowest_step)
{
    peer *p = lost(&peer_first);
    const Paramd__HelloRequest *hello;
    peer_frame l;

    restart(p);
    peer_connect(p);
    hello = expect_hello(p, &l);
    assert_false(hello->rejoins);
    assert_string_equal(option(hello, "start_step"), "7");
    assert_true(hello->nonce != peer_first.nonce);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(the_step_replaces_the_option_that_was_given)
{
    static const char *const options[] = { "seed=5", "start_step=3", NULL };
    pd_core_config config = peer_first;
    const Paramd__HelloRequest *hello;
    peer *p;
    peer_frame l;

    config.options = options;
    p = lost(&config);
    restart(p);
    peer_connect(p);
    hello = expect_hello(p, &l);
    assert_int_equal(hello->n_options, 2);
    assert_string_equal(option(hello, "start_step"), "7");
    assert_string_equal(option(hello, "seed"), "5");
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(the_other_ranks_wait_until_rank_0_has_created_it)
{
    peer *p = lost(&peer_four);
    pd_ticket_id ticket = restart(p);
    peer_frame l;

    for (int i = 0; i < 3; i++) {
        peer_connect(p);
        assert_true(expect_hello(p, &l)->rejoins);
        assert_null(option(l.message, "start_step"));
        peer_refuse(p, &l.prefix, PD_NOT_FOUND, "there is no job job");
        peer_frame_drop(&l);
        assert_non_null(strstr(p->core->link.reason, "rank 0 creates it"));
        assert_int_equal(p->core->end.error.code, PD_OK);
        peer_cut(p);
    }
    p->creator = 2000;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP - 1);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_step(p->core, 1), STEP - 1);
    peer_free(p);
}

/* The server is killed again before rank 0 has sent its weights. A rank that created the job then would create it at
 * step 0. */
TEST(the_other_ranks_wait_for_rank_0_again_if_the_server_is_lost_before_the_weights_came)
{
    peer *p = lost(&peer_four);
    const Paramd__HelloRequest *hello;
    peer_frame l;

    restart(p);
    p->creator = 2000;
    peer_connect(p);
    peer_welcome(p);
    answer_without_weights(p);
    peer_cut(p);
    peer_connect(p);
    hello = expect_hello(p, &l);
    assert_true(hello->rejoins);
    assert_int_equal(hello->creator, 0);
    peer_refuse(p, &l.prefix, PD_NOT_FOUND, "there is no job job");
    peer_frame_drop(&l);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_cut(p);
    p->creator = 3000;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(the_next_push_and_barrier_are_those_of_the_new_job)
{
    peer *p = lost(&peer_four);
    pd_ticket_id barrier;
    peer_frame l;

    restart(p);
    p->creator = 2000;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP - 1);
    push(p);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((Paramd__PushRequest *)l.message)->step, STEP);
    peer_frame_drop(&l);
    assert_int_equal(pd_core_barrier(p->core, &barrier, NULL), PD_OK);
    l = peer_expect(p, PD_BARRIER);
    assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, 1);
    peer_frame_drop(&l);
    peer_cut(p); /* after a later reconnect, the client finds the new job */
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP - 1);
    assert_int_equal(p->core->end.error.code, PD_OK);
    peer_free(p);
}

TEST(a_job_may_be_lost_twice)
{
    peer *p = lost(&peer_four);

    restart(p);
    p->creator = 2000;
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, STEP);
    refuse_as_unknown(p);
    assert_true(p->core->end.lost);
    pd_core_down(p->core, p->now, "dropped");
    restart(p);
    peer_free(p);
}

TEST(a_job_that_the_server_has_is_not_started_anew)
{
    peer *p = trained(&peer_four);
    pd_ticket_id ticket;

    assert_int_equal(pd_core_recreate(p->core, 0, &ticket, NULL), PD_FAILED_PRECONDITION);
    peer_free(p);
}

TEST(without_memory_the_job_stays_lost)
{
    peer *p = lost(&peer_first);
    pd_ticket_id ticket;
    int64_t n = 0;
    bool failed = true;

    for (; failed; n++) {
        int rc;
        oom_arm(n);
        rc = pd_core_recreate(p->core, 0, &ticket, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(p->core->end.lost, failed);
    }
    assert_true(n > 2);
    peer_free(p);
}
