/* Tests the client's core with a server that was started anew from a checkpoint, and with a client that has no window:
 * the handle ends with PD_REWIND, and pd_core_rewind opens it again at the server's step. */
#include "test.h"
#include "peer.h"

enum { PARAMS = 2, ELEMENTS = 3, STEP = 7, CHECKPOINT = 4 };
static const int64_t sizes[PARAMS] = { ELEMENTS, ELEMENTS };
/* Returns a worker whose job is at step STEP. */
static peer *trained(void)
{
    return peer_trained(&peer_four, sizes, PARAMS, STEP);
}

static pd_ticket_id push(peer *p)
{
    return peer_push_pull(p, PARAMS, ELEMENTS);
}

/* Breaks the connection. The server that comes back is at this step. */
static void come_back_at(peer *p, uint64_t step)
{
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, step);
}

/* Returns a worker whose handle has ended because the server has gone back. */
static peer *gone_back(void)
{
    peer *p = trained();
    pd_ticket_id ticket = push(p);
    peer_frame l = peer_expect(p, PD_PUSH_PULL);
    pd_error err;

    peer_frame_drop(&l);
    come_back_at(p, CHECKPOINT);
    assert_true(p->core->end.gone_back);
    assert_false(p->core->end.lost);
    assert_int_equal(peer_finish(p, ticket, &err), PD_REWIND);
    assert_non_null(strstr(err.text, "gone back to step 4 of job job"));
    assert_non_null(strstr(err.text, "had taken step 7. pd_client_rewind"));
    return p;
}

/* Opens the handle again, as far as a new connection. */
static pd_ticket_id reopen(peer *p)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_rewind(p->core, &ticket, NULL), PD_OK);
    if (pd_core_link(p->core, p->now) == PD_LINK_DROP) pd_core_down(p->core, p->now, "dropped");
    p->now = pd_core_next(p->core);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
    peer_connect(p);
    return ticket;
}

static pd_ticket_id rewind_to(peer *p, uint64_t step)
{
    pd_ticket_id ticket = reopen(p);

    peer_welcome(p);
    peer_answer_declare(p, PARAMS, step);
    return ticket;
}

static void refuse_as_unknown(peer *p)
{
    peer_frame l = peer_expect(p, PD_HELLO);

    peer_refuse(p, &l.prefix, PD_NOT_FOUND, "there is no job job");
    peer_frame_drop(&l);
}

TEST(a_server_at_an_earlier_step_ends_the_handle)
{
    peer *p = gone_back();
    pd_ticket_id ticket;

    assert_int_equal(pd_core_barrier(p->core, &ticket, NULL), PD_REWIND);
    assert_int_equal(pd_core_step(p->core, 0), STEP);
    assert_int_equal(pd_core_stats(p->core).rewinds, 1);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_link(p->core, UINT64_MAX), PD_LINK_REST);
    peer_free(p);
}

TEST(a_single_parameter_at_an_earlier_step_ends_the_handle)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, other = PARAMD__DECLARED__INIT, *all[] = { &one, &other };
    peer *p = trained();
    peer_frame l;

    one.step = STEP;
    other.step = STEP - 1;
    one.initialised = other.initialised = true;
    message.parameters = all;
    message.n_parameters = PARAMS;
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    l = peer_expect(p, PD_DECLARE);
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
    assert_true(p->core->end.gone_back);
    assert_non_null(strstr(p->core->end.error.text, "gone back to step 6"));
    peer_free(p);
}

TEST(a_job_that_is_gone_is_lost_and_not_gone_back)
{
    peer *p = trained();

    peer_cut(p);
    peer_connect(p);
    refuse_as_unknown(p);
    assert_true(p->core->end.lost);
    assert_false(p->core->end.gone_back);
    peer_free(p);
}

TEST(the_same_process_comes_back_to_the_same_job)
{
    peer *p = gone_back();
    const Paramd__HelloRequest *hello;
    peer_frame l;

    reopen(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_int_equal(hello->nonce, peer_four.nonce);
    assert_true(hello->rejoins);
    assert_int_equal(hello->creator, 1000);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(the_next_push_is_for_the_step_after_the_checkpoint)
{
    peer *p = gone_back();
    pd_ticket_id ticket = rewind_to(p, CHECKPOINT);
    peer_frame l;

    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_step(p->core, 1), CHECKPOINT);
    ticket = push(p);
    l = peer_expect(p, PD_PUSH_PULL);
    assert_int_equal(((const Paramd__PushRequest *)l.message)->step, CHECKPOINT + 1);
    peer_reply_data(p, &l.prefix, PARAMS, 1, CHECKPOINT + 1, (float[32]){ 0 }, 16 + ELEMENTS);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_step(p->core, 1), CHECKPOINT + 1);
    peer_free(p);
}

TEST(a_connection_that_breaks_meanwhile_is_made_again)
{
    peer *p = gone_back();
    pd_ticket_id ticket;

    ticket = reopen(p);
    peer_welcome(p);
    come_back_at(p, CHECKPOINT - 1);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_step(p->core, 0), CHECKPOINT - 1);
    peer_free(p);
}

TEST(a_server_may_go_back_twice)
{
    peer *p = gone_back();
    pd_ticket_id ticket = rewind_to(p, CHECKPOINT);

    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    come_back_at(p, CHECKPOINT - 2);
    assert_true(p->core->end.gone_back);
    ticket = rewind_to(p, CHECKPOINT - 2);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_stats(p->core).rewinds, 2);
    peer_free(p);
}

/* The job that is restarted then goes on from the worker's own weights, so its step must not have been forgotten. */
TEST(a_checkpoint_that_is_gone_too_leaves_the_job_lost_at_the_workers_step)
{
    peer *p = gone_back();
    pd_ticket_id ticket;
    pd_error err;

    ticket = reopen(p);
    refuse_as_unknown(p);
    assert_true(p->core->end.lost);
    assert_int_equal(peer_finish(p, ticket, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "after step 7"));
    assert_int_equal(pd_core_rewind(p->core, &ticket, NULL), PD_DATA_LOSS);
    peer_free(p);
}

TEST(a_server_that_has_not_gone_back_is_not_followed)
{
    peer *p = trained();
    pd_ticket_id ticket;

    assert_int_equal(pd_core_rewind(p->core, &ticket, NULL), PD_FAILED_PRECONDITION);
    peer_free(p);
}

static uint64_t barriers_of_hello(peer *p)
{
    peer_frame l = peer_expect(p, PD_HELLO);
    uint64_t barriers = ((const Paramd__HelloRequest *)l.message)->barriers;

    peer_frame_drop(&l);
    return barriers;
}

static uint64_t steps_of_hello(peer *p)
{
    peer_frame l = peer_expect(p, PD_HELLO);
    uint64_t steps = ((const Paramd__HelloRequest *)l.message)->steps;

    peer_frame_drop(&l);
    return steps;
}

TEST(hello_tells_how_many_steps_this_process_has_seen_closed)
{
    peer *p = peer_new(&peer_four);

    peer_connect(p);
    assert_int_equal(steps_of_hello(p), 0); /* nothing is declared yet */
    peer_free(p);
    p = trained();
    peer_cut(p);
    peer_connect(p);
    assert_int_equal(steps_of_hello(p), STEP);
    peer_free(p);
}

static uint64_t barrier(peer *p, bool answers)
{
    pd_ticket_id ticket;
    peer_frame l;
    uint64_t sequence;

    assert_int_equal(pd_core_barrier(p->core, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_BARRIER);
    sequence = ((const Paramd__BarrierRequest *)l.message)->sequence;
    if (answers) peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    return sequence;
}

TEST(hello_tells_how_many_barriers_this_process_has_passed)
{
    peer *p = trained();

    assert_int_equal(barrier(p, true), 1);
    assert_int_equal(barrier(p, true), 2);
    assert_int_equal(barrier(p, false), 3);
    peer_cut(p);
    peer_connect(p);
    assert_int_equal(barriers_of_hello(p), 2);
    peer_free(p);
}

TEST(a_barrier_that_was_cut_off_is_counted_again)
{
    peer *p = trained();

    assert_int_equal(barrier(p, true), 1);
    assert_int_equal(barrier(p, false), 2);
    come_back_at(p, CHECKPOINT);
    rewind_to(p, CHECKPOINT);
    assert_int_equal(barrier(p, false), 2);
    peer_free(p);
}

TEST(without_memory_the_handle_stays_as_it_was)
{
    peer *p = gone_back();
    pd_ticket_id ticket;
    int64_t n = 0;
    bool failed = true;

    for (; failed; n++) {
        int rc;
        oom_arm(n);
        rc = pd_core_rewind(p->core, &ticket, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(p->core->end.gone_back, failed);
    }
    assert_true(n > 1);
    peer_free(p);
}

static peer *with_updates(float *weights_of)
{
    pd_client_param param = { .name = "p0", .shape = { .rank = 1, .dim = { ELEMENTS } }, .update_dtype = PD_BF16 };
    pd_item item = { .param = 0, .weights = weights_of };
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_declare(p->core, &param, 1, &ticket, NULL), PD_OK);
    peer_answer_declare(p, 1, STEP);
    assert_int_equal(pd_core_pull(p->core, &item, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    peer_reply_data(p, &l.prefix, 1, 0, STEP, (float[ELEMENTS]){ 0 }, ELEMENTS);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

TEST(versions_of_weights_that_no_longer_exist_are_forgotten)
{
    float own[ELEMENTS];
    pd_item item = { .param = 0, .weights = own };
    peer *p = with_updates(own);
    pd_ticket_id ticket;
    peer_frame l;

    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, CHECKPOINT);
    ticket = reopen(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, CHECKPOINT);
    assert_int_equal(pd_core_pull(p->core, &item, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    l = peer_expect(p, PD_PULL);
    assert_int_equal(((const Paramd__PullRequest *)l.message)->wants[0]->holds, 0);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_step_that_was_being_closed_is_closed_no_more)
{
    peer *p = trained();
    pd_ticket_id ticket;

    assert_int_equal(pd_core_close_step(p->core, STEP + 1, &ticket, NULL), PD_OK);
    come_back_at(p, CHECKPOINT);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_REWIND);
    rewind_to(p, CHECKPOINT);
    push(p);
    assert_int_equal(pd_core_close_step(p->core, CHECKPOINT + 1, &ticket, NULL), PD_OK);
    peer_free(p);
}
