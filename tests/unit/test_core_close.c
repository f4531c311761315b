/* Tests how the client closes a step: it sends one frame after its pushes and keeps the frame until it is answered.
 * Then the step number of every parameter rises by one. */
#include "test.h"
#include "peer.h"

enum { PARAMS = 3 };

static const int64_t sizes[PARAMS] = { 1, 1, 1 };
static float gradient = 1;

static void expect_close(peer *p, uint64_t step, peer_frame *l)
{
    const Paramd__PushRequest *push;

    *l = peer_expect(p, PD_PUSH);
    push = l->message;
    assert_true(push->last);
    assert_int_equal(push->step, step);
    assert_int_equal(push->n_pieces, 0);
    assert_int_equal(l->prefix.payload_bytes, 0);
}

static pd_ticket_id push(peer *p, pd_item *item)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, item, 1, NULL, &ticket, NULL), PD_OK);
    return ticket;
}

static pd_ticket_id close_step(peer *p, uint64_t step)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_close_step(p->core, step, &ticket, NULL), PD_OK);
    return ticket;
}

OBJECT(peer_running(sizes, PARAMS), peer_free);

TEST(the_end_of_a_step_goes_after_its_pushes, peer *p)
{
    pd_item item = { .param = 1, .gradient = &gradient };
    peer_frame l;

    push(p, &item);
    close_step(p, 1);
    l = peer_expect(p, PD_PUSH);
    assert_false(((Paramd__PushRequest *)l.message)->last);
    peer_frame_drop(&l);
    expect_close(p, 1, &l);
    peer_frame_drop(&l);
}

TEST(the_reply_advances_all_parameters_by_one_step, peer *p)
{
    pd_item item = { .param = 2, .gradient = &gradient };
    pd_ticket_id ticket = close_step(p, 1);
    peer_frame l;

    expect_close(p, 1, &l);
    peer_reply_data(p, &l.prefix, 0, 0, 0, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    for (size_t i = 0; i < PARAMS; i++) assert_int_equal(pd_core_step(p->core, i), 1);
    push(p, &item);
    l = peer_expect(p, PD_PUSH);
    assert_int_equal(((Paramd__PushRequest *)l.message)->step, 2);
    peer_frame_drop(&l);
}

TEST(a_parameter_left_out_cannot_be_pushed_before_the_reply, peer *p)
{
    pd_item item = { .param = 2, .gradient = &gradient };
    pd_ticket_id closing = close_step(p, 1), ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "has no gradient in step 1, which is being closed"));
    expect_close(p, 1, &l);
    peer_reply_data(p, &l.prefix, 0, 0, 0, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, closing, NULL), PD_OK);
    push(p, &item);
}

/* If a push is refused, the client's request to close the step fails with the error of the push. Otherwise the frame
 * that closes the step would be sent again after a reconnect, to a server that does not know of the refusal. */
TEST(a_refused_push_ends_the_closing_of_its_step_with_its_error, peer *p)
{
    pd_item item = { .param = 0, .gradient = &gradient };
    peer_frame first, closing;
    pd_ticket_id ticket;
    pd_error err;

    push(p, &item);
    first = peer_expect(p, PD_PUSH);
    ticket = close_step(p, 1);
    expect_close(p, 1, &closing);
    peer_refuse(p, &first.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    assert_int_equal(peer_finish(p, ticket, &err), PD_DEADLINE_EXCEEDED);
    assert_string_equal(err.text, "rank 1 has not contributed");
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 0);
    peer_expect_silence(p);
    peer_frame_drop(&first);
    peer_frame_drop(&closing);
}

TEST(a_step_is_not_closed_before_refused_pushes_are_repeated, peer *p)
{
    pd_item item = { .param = 0, .gradient = &gradient };
    pd_ticket_id ticket = push(p, &item);
    peer_frame first = peer_expect(p, PD_PUSH);
    pd_error err;

    peer_refuse(p, &first.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&first);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    assert_int_equal(pd_core_close_step(p->core, 1, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "p0 ended with an error; push it again first"));
    push(p, &item);
    close_step(p, 1);
}

TEST(pushes_repeat_the_mark_of_the_last_error_that_was_read, peer *p)
{
    pd_item item = { .param = 0, .gradient = &gradient };
    pd_ticket_id ticket = push(p, &item);
    peer_frame l = peer_expect(p, PD_PUSH);

    assert_int_equal(((Paramd__PushRequest *)l.message)->mark, 0);
    peer_refuse_marked(p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed", 7);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    push(p, &item);
    close_step(p, 1);
    for (int i = 0; i < 2; i++) {
        l = peer_expect(p, PD_PUSH);
        assert_int_equal(((Paramd__PushRequest *)l.message)->mark, 7);
        peer_frame_drop(&l);
    }
}

TEST(a_refused_push_may_be_repeated_while_the_step_is_being_closed, peer *p)
{
    pd_item item = { .param = 0, .gradient = &gradient };
    pd_ticket_id ticket = push(p, &item);
    peer_frame first = peer_expect(p, PD_PUSH);

    close_step(p, 1);
    peer_refuse(p, &first.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&first);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_DEADLINE_EXCEEDED);
    push(p, &item);
}

TEST(one_step_is_closed_at_a_time, peer *p)
{
    pd_ticket_id ticket = close_step(p, 1), other;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_close_step(p->core, 1, &other, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "step 1 is being closed"));
    expect_close(p, 1, &l);
    peer_refuse(p, &l.prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_DEADLINE_EXCEEDED);
    for (size_t i = 0; i < PARAMS; i++) assert_int_equal(pd_core_step(p->core, i), 0);
    close_step(p, 1);
}

TEST(the_closing_frame_is_sent_again_on_the_next_connection, peer *p)
{
    pd_item item = { .param = 1, .gradient = &gradient };
    peer_frame l;

    push(p, &item);
    close_step(p, 1);
    for (int i = 0; i < 2; i++) {
        l = peer_expect(p, PD_PUSH);
        peer_frame_drop(&l);
    }
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, PARAMS, 0);
    l = peer_expect(p, PD_PUSH);
    assert_false(((Paramd__PushRequest *)l.message)->last);
    peer_frame_drop(&l);
    expect_close(p, 1, &l);
    peer_frame_drop(&l);
}

TEST(there_is_no_step_0_to_close, peer *p)
{
    pd_ticket_id ticket;

    assert_int_equal(pd_core_close_step(p->core, 0, &ticket, NULL), PD_INVALID_ARGUMENT);
}
