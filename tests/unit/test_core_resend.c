/* Tests the client's core with a window and a server that was started anew from a checkpoint: the pushes since then are
 * sent again, and the program does not notice. */
#include "test.h"
#include "windowed.h"

enum { WINDOW = 8 };

/* Returns a worker at step `step`, whose server has gone back to step `back`. */
static windowed gone_back(uint64_t step, uint64_t back)
{
    windowed w = windowed_new(WINDOW);

    windowed_train(&w, step);
    windowed_come_back(&w, back);
    return w;
}

TEST(pushes_since_the_checkpoint_are_sent_again_byte_for_byte_step_by_step)
{
    windowed w = gone_back(5, 2);

    windowed_catch_up(&w, 3, 5);
    peer_expect_silence(w.p);
    assert_int_equal(w.p->core->end.error.code, PD_OK);
    assert_int_equal(pd_core_stats(w.p->core).rewinds, 1);
    assert_int_equal(pd_core_stats(w.p->core).replayed, 3);
    windowed_free(&w);
}

TEST(a_server_at_the_same_step_gets_nothing_again)
{
    windowed w = gone_back(5, 5);

    peer_expect_silence(w.p);
    assert_int_equal(pd_core_stats(w.p->core).rewinds, 0);
    windowed_free(&w);
}

TEST(the_program_sees_no_earlier_step)
{
    windowed w = gone_back(5, 2);

    assert_int_equal(pd_core_step(w.p->core, 0), 5);
    windowed_answer(&w, &(pd_prefix){ 0 }, 0); /* an answer to nothing */
    windowed_catch_up(&w, 3, 5);
    assert_int_equal(pd_core_step(w.p->core, 0), 5);
    windowed_train(&w, 6);
    windowed_free(&w);
}

TEST(answers_to_pushes_that_are_sent_again_leave_the_callers_memory_alone)
{
    windowed w = gone_back(5, 2);

    memset(w.p->weights, 0x55, sizeof w.p->weights);
    memset(w.p->gradients, 0x55, sizeof w.p->gradients);
    windowed_catch_up(&w, 3, 5);
    for (size_t i = 0; i < sizeof w.p->weights; i++) assert_int_equal(((uint8_t *)w.p->weights)[i], 0x55);
    windowed_free(&w);
}

TEST(a_push_that_was_under_way_goes_on_behind_them)
{
    windowed w = windowed_new(WINDOW);
    pd_ticket_id ticket;
    peer_frame l;
    pd_prefix again;

    windowed_train(&w, 5);
    ticket = windowed_push(&w, &l);
    peer_frame_drop(&l);
    windowed_come_back(&w, 3);
    windowed_catch_up(&w, 4, 5);
    assert_false(pd_core_done(w.p->core, ticket));
    again = windowed_expect_again(&w, 6);
    windowed_answer(&w, &again, 6);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_OK);
    assert_int_equal(pd_core_step(w.p->core, 1), 6);
    windowed_free(&w);
}

TEST(a_push_that_is_made_meanwhile_waits)
{
    windowed w = gone_back(5, 3);
    pd_ticket_id ticket = peer_push_pull(w.p, WINDOWED_PARAMS, WINDOWED_ELEMENTS);
    pd_prefix pushed;

    windowed_catch_up(&w, 4, 5);
    pushed = windowed_expect(&w, PD_PUSH_PULL);
    windowed_answer(&w, &pushed, 6);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_OK);
    windowed_free(&w);
}

static pd_ticket_id pull(windowed *w)
{
    pd_item *item = &w->p->items[0];
    pd_ticket_id ticket;

    *item = (pd_item){ .param = 0, .weights = w->p->weights[0] };
    assert_int_equal(pd_core_pull(w->p->core, item, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    return ticket;
}

TEST(a_pull_waits_until_the_server_is_where_it_was)
{
    windowed w = windowed_new(WINDOW);

    windowed_train(&w, 5);
    pull(&w);
    windowed_expect(&w, PD_PULL);
    windowed_come_back(&w, 3);
    pull(&w);
    windowed_catch_up(&w, 4, 5);
    windowed_expect(&w, PD_PULL);
    windowed_expect(&w, PD_PULL);
    windowed_free(&w);
}

TEST(recalls_requests_for_checkpoints_and_leaving_wait_too)
{
    windowed w = gone_back(5, 4);
    pd_ticket_id ticket;

    assert_int_equal(pd_core_get_worker_state(w.p->core, &ticket, NULL), PD_OK);
    assert_int_equal(pd_core_checkpoint(w.p->core, 0, 100, &ticket, NULL), PD_OK);
    assert_int_equal(pd_core_leave(w.p->core, &ticket, NULL), PD_OK);
    windowed_catch_up(&w, 5, 5);
    windowed_expect(&w, PD_RECALL);
    windowed_expect(&w, PD_CHECKPOINT);
    windowed_expect(&w, PD_LEAVE);
    windowed_free(&w);
}

/* Others may wait in it before they push what the server lacks. */
TEST(a_barrier_does_not_wait)
{
    windowed w = gone_back(5, 3);
    pd_ticket_id ticket;

    assert_int_equal(pd_core_barrier(w.p->core, &ticket, NULL), PD_OK);
    windowed_expect_again(&w, 4);
    windowed_expect(&w, PD_BARRIER);
    windowed_free(&w);
}

TEST(a_call_that_waits_can_tell_why)
{
    windowed w = gone_back(5, 3);

    assert_non_null(strstr(w.p->core->link.reason, "gone back to step 3"));
    assert_non_null(strstr(w.p->core->link.reason, "up to step 5 again"));
    windowed_catch_up(&w, 4, 5);
    assert_string_equal(w.p->core->link.reason, "");
    windowed_free(&w);
}

static void expect_different(windowed *w, const char *what)
{
    const pd_error *error = &w->p->core->end.error;

    assert_int_equal(error->code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(error->text, "parameter p0: step 3"));
    assert_non_null(strstr(error->text, what));
    assert_non_null(strstr(error->text, "BLAS kernels"));
    windowed_free(w);
}

TEST(other_weights_end_the_handle)
{
    float weights[16 + WINDOWED_ELEMENTS] = { 3, 3.125f, 3.25f };
    windowed w = gone_back(5, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    memcpy(weights + 16, weights, WINDOWED_ELEMENTS * sizeof *weights);
    ((uint8_t *)&weights[17])[0] ^= 1; /* one bit in the last place */
    peer_reply_data(w.p, &again, WINDOWED_PARAMS, 1, 3, weights, 16 + WINDOWED_ELEMENTS);
    expect_different(&w, "other weights");
}

static void answer_as(windowed *w, const pd_prefix *asked, uint32_t outcome, uint64_t version, uint64_t step)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[] = { &one, &one };
    float weights[16 + WINDOWED_ELEMENTS] = { 3, 3.125f, 3.25f };

    memcpy(weights + 16, weights, WINDOWED_ELEMENTS * sizeof *weights);
    one.outcome = outcome;
    one.step = step;
    one.version = version;
    message.outcomes = all;
    message.n_outcomes = WINDOWED_PARAMS;
    peer_reply(w->p, asked, &message.base, weights, sizeof weights);
}

TEST(another_outcome_or_version_ends_the_handle)
{
    windowed w = gone_back(5, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    answer_as(&w, &again, 2, 3, 3);
    expect_different(&w, "other results");
    w = gone_back(5, 2);
    again = windowed_expect_again(&w, 3);
    answer_as(&w, &again, 1, 2, 3);
    expect_different(&w, "other results");
}

/* On an earlier connection the server may have closed this step, and later ones, without its answer having come. */
TEST(an_answer_about_a_later_step_is_not_compared)
{
    windowed w = gone_back(5, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    answer_as(&w, &again, 2, 9, 5);
    assert_int_equal(w.p->core->end.error.code, PD_OK);
    windowed_free(&w);
}

TEST(an_answer_of_another_length_breaks_the_protocol)
{
    windowed w = gone_back(5, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    peer_reply_data(w.p, &again, WINDOWED_PARAMS, 1, 3, (float[8]){ 0 }, 8);
    assert_int_equal(w.p->core->end.error.code, PD_INTERNAL);
    windowed_free(&w);
}

TEST(a_push_that_is_held_has_no_answer_yet)
{
    windowed w = gone_back(5, 2);
    pd_prefix held;
    pd_error err;

    assert_int_equal(pd_prefix_read(&held, w.first[5].at, UINT64_MAX / 2, &err), PD_OK);
    windowed_answer(&w, &held, 5);
    assert_int_equal(w.p->core->end.error.code, PD_INTERNAL);
    windowed_free(&w);
}

TEST(a_connection_that_breaks_meanwhile_goes_on_where_the_server_is)
{
    windowed w = gone_back(6, 2);

    windowed_catch_up(&w, 3, 3);
    windowed_expect_again(&w, 4);
    windowed_come_back(&w, 4); /* the server has closed step 4, and its answer was lost */
    windowed_catch_up(&w, 5, 6);
    assert_int_equal(pd_core_stats(w.p->core).rewinds, 1);
    windowed_train(&w, 7);
    windowed_free(&w);
}

TEST(the_same_push_is_sent_again_if_its_answer_was_lost)
{
    windowed w = gone_back(6, 3);

    windowed_expect_again(&w, 4);
    windowed_come_back(&w, 3);
    windowed_catch_up(&w, 4, 6);
    windowed_free(&w);
}

TEST(a_server_may_go_back_once_more_meanwhile)
{
    windowed w = gone_back(6, 3);

    windowed_catch_up(&w, 4, 5);
    windowed_come_back(&w, 3);
    windowed_catch_up(&w, 4, 4);
    windowed_come_back(&w, 1); /* the newest checkpoint was damaged */
    windowed_catch_up(&w, 2, 6);
    assert_int_equal(pd_core_stats(w.p->core).rewinds, 3);
    windowed_train(&w, 8);
    windowed_free(&w);
}

TEST(a_step_that_misses_a_rank_for_long_is_sent_once_more)
{
    windowed w = gone_back(4, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    peer_refuse(w.p, &again, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
    windowed_catch_up(&w, 3, 4);
    assert_int_equal(w.p->core->end.error.code, PD_OK);
    windowed_free(&w);
}

TEST(a_server_that_shuts_down_gets_the_push_on_the_next_connection)
{
    windowed w = gone_back(4, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    peer_refuse(w.p, &again, PD_UNAVAILABLE, "draining");
    peer_expect_silence(w.p);
    windowed_come_back(&w, 2);
    windowed_catch_up(&w, 3, 4);
    windowed_free(&w);
}

TEST(a_server_without_memory_is_asked_again_on_another_connection)
{
    windowed w = gone_back(4, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    peer_refuse(w.p, &again, PD_RESOURCE_EXHAUSTED, "out of memory");
    assert_int_equal(pd_core_link(w.p->core, w.p->now), PD_LINK_DROP);
    windowed_come_back(&w, 2);
    windowed_catch_up(&w, 3, 4);
    windowed_free(&w);
}

TEST(a_push_that_is_refused_for_good_ends_in_a_rewind)
{
    windowed w = gone_back(4, 2);
    pd_prefix again = windowed_expect_again(&w, 3);

    peer_refuse(w.p, &again, PD_INVALID_ARGUMENT, "a gradient is not finite");
    assert_true(w.p->core->end.gone_back);
    assert_non_null(strstr(w.p->core->end.error.text, "refuses the push of step 3"));
    assert_non_null(strstr(w.p->core->end.error.text, "not finite"));
    windowed_free(&w);
}

static uint64_t mark_of(const peer_frame *l)
{
    return ((const Paramd__PushRequest *)l->message)->mark;
}

/* A mark is the number of an error of one server. Another server would take it for one of its own. */
TEST(marks_of_another_connection_are_not_sent)
{
    windowed w = windowed_new(WINDOW);
    pd_ticket_id ticket;
    peer_frame l;

    ticket = windowed_push(&w, &l);
    peer_refuse_marked(w.p, &l.prefix, PD_INVALID_ARGUMENT, "bad", 17);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_INVALID_ARGUMENT);
    windowed_train(&w, 1);
    ticket = windowed_push(&w, &l);
    assert_int_equal(mark_of(&l), 17);
    peer_frame_drop(&l);
    windowed_come_back(&w, 0);
    for (uint64_t step = 1; step <= 2; step++) {
        l = peer_expect(w.p, PD_PUSH_PULL);
        assert_int_equal(mark_of(&l), 0);
        windowed_answer(&w, &l.prefix, step);
        peer_frame_drop(&l);
    }
    assert_int_equal(peer_finish(w.p, ticket, NULL), PD_OK);
    windowed_free(&w);
}

/* Packs an answer to a Declare: both parameters are at this step. */
static uint8_t *declared_at(uint64_t step, const pd_prefix *asked, size_t *bytes)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one, &one };
    uint8_t *frame;

    one.step = step;
    one.initialised = true;
    message.parameters = all;
    message.n_parameters = WINDOWED_PARAMS;
    assert_int_equal(pd_frame_pack(&frame, bytes, PD_DECLARE, PD_FLAG_REPLY, asked->request, &message.base, NULL, 0, 0),
                     PD_OK);
    return frame;
}

/* Answers Declare while the n-th allocation fails. Returns whether there was one. */
static bool come_back_without_memory(windowed *w, uint64_t step, int64_t n)
{
    pd_prefix asked;
    uint8_t *frame;
    size_t bytes;
    bool failed;

    peer_cut(w->p);
    peer_connect(w->p);
    peer_welcome(w->p);
    asked = windowed_expect(w, PD_DECLARE);
    frame = declared_at(step, &asked, &bytes);
    oom_arm(n);
    peer_feed(w->p, frame, bytes);
    failed = oom_disarm();
    free(frame);
    return failed;
}

TEST(without_memory_the_next_connection_goes_on)
{
    windowed w = windowed_new(WINDOW);
    int64_t n = 0;

    windowed_train(&w, 6);
    while (come_back_without_memory(&w, 2, n++)) assert_int_equal(w.p->core->end.error.code, PD_OK);
    assert_true(n > 3); /* what an attempt has made stays for the next one */
    windowed_catch_up(&w, 3, 6);
    windowed_free(&w);
}

TEST(an_answer_without_memory_is_asked_for_again)
{
    windowed w = gone_back(5, 2);
    int64_t n = 0;

    for (;; n++) {
        pd_prefix again = windowed_expect_again(&w, 3);
        if (!windowed_answer_without_memory(&w, &again, 3, n)) break;
        assert_int_equal(w.p->core->end.error.code, PD_OK);
        windowed_come_back(&w, 2);
    }
    assert_true(n >= 1);
    windowed_catch_up(&w, 4, 5);
    windowed_free(&w);
}
