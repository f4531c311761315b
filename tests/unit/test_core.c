/* Tests the client's core and its connection, against a scripted server. */
#include "test.h"
#include "peer.h"

TEST(introduces_itself_and_is_welcomed)
{
    static const char *const options[] = { "nonfinite=reject", NULL }, *const rules[] = { "*bias sgd lr=0.5", "* sgd",
                                                                                          NULL };
    pd_core_config config = peer_four;
    peer *p;
    peer_frame l;
    Paramd__HelloRequest *hello;

    config.options = options;
    config.rules = rules;
    p = peer_new(&config);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    hello = l.message;
    assert_string_equal(hello->job, "job");
    assert_int_equal(hello->rank, 2);
    assert_int_equal(hello->world_size, 4);
    assert_int_equal(hello->nonce, 77);
    assert_string_equal(hello->options[0]->name, "nonfinite");
    assert_string_equal(hello->options[0]->value, "reject");
    assert_int_equal(hello->n_rules, 2);
    assert_string_equal(hello->rules[0], "*bias sgd lr=0.5");
    assert_false(pd_core_done(p->core, p->core->welcome_ticket));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(takes_the_welcome_split_at_every_byte)
{
    for (size_t split = 1; split < 80; split++) {
        peer *p = peer_new(&peer_four);
        pd_error err;

        p->split = split;
        peer_connect(p);
        peer_welcome(p);
        assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_OK);
        assert_string_equal(p->core->welcome.server, "paramd test");
        assert_int_equal(p->core->welcome.chunk_elements, CHUNK);
        peer_free(p);
    }
}

TEST(ends_with_the_servers_error_when_hello_is_refused)
{
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    peer_refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "world_size: the job has 2, this worker says 4");
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_FAILED_PRECONDITION);
    assert_string_equal(err.text, "world_size: the job has 2, this worker says 4");
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_link(p->core, p->now + 3600 * SECOND), PD_LINK_REST);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(waits_for_a_server_that_is_going_away)
{
    peer *p = peer_new(&peer_four);
    peer_frame l;

    peer_connect(p);
    l = peer_expect(p, PD_HELLO);
    peer_refuse(p, &l.prefix, PD_UNAVAILABLE, "draining");
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    assert_true(pd_core_done(p->core, p->core->welcome_ticket));
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(an_impatient_handle_ends_when_every_address_was_tried_once)
{
    pd_core_config config = peer_four;
    peer *p;
    pd_error err;

    config.impatient = true;
    config.urls = 2;
    p = peer_new(&config);
    pd_core_down(p->core, p->now, "first: refused");
    assert_false(pd_core_done(p->core, p->core->welcome_ticket));
    pd_core_down(p->core, p->now, "second: refused");
    assert_int_equal(peer_finish(p, p->core->welcome_ticket, &err), PD_UNAVAILABLE);
    assert_string_equal(err.text, "second: refused");
    assert_int_equal(pd_core_link(p->core, p->now + 3600 * SECOND), PD_LINK_REST);
    peer_free(p);
}

TEST(an_impatient_handle_leaves_a_silent_address_in_time_for_the_next_one)
{
    pd_core_config config = peer_four;
    peer *p;

    config.impatient = true;
    config.deadline_ns = 6 * SECOND;
    config.urls = 2;
    p = peer_new(&config);
    peer_connect(p);
    assert_int_equal(pd_core_next(p->core), p->now + 2 * SECOND);
    p->now += 2 * SECOND - 1;
    pd_core_tick(p->core, p->now);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_KEEP);
    pd_core_tick(p->core, ++p->now);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    assert_int_equal(p->core->link.url, 1);
    peer_connect(p);
    peer_welcome(p);
    assert_true(pd_core_done(p->core, p->core->welcome_ticket));
    peer_free(p);
}

TEST(refuses_an_option_without_a_value)
{
    static const char *const options[] = { "nonfinite", NULL };
    pd_core_config config = peer_four;
    pd_core *core;
    pd_error err;

    config.options = options;
    assert_int_equal(pd_core_new(&core, &config, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "nonfinite"));
}

/* Returns the longest pause before the next attempt after so much time without a welcome. */
static uint64_t longest_pause(uint64_t alone_ns)
{
    uint64_t most = alone_ns / 8 > SECOND / 20 ? alone_ns / 8 : SECOND / 20;

    return most < 2 * SECOND ? most : 2 * SECOND;
}

TEST(tries_again_after_an_eighth_of_the_time_without_a_server_from_50_ms_to_2_s)
{
    peer *p = peer_new(&peer_four);
    uint64_t begun = p->now;

    for (int i = 0; p->now < begun + 60 * SECOND; i++) {
        uint64_t wait, most = longest_pause(p->now - begun);

        assert_int_equal(p->core->link.url, i % 2);
        pd_core_down(p->core, p->now, "refused");
        wait = pd_core_next(p->core) - p->now;
        assert_in_range(wait, most / 2, most);
        assert_int_equal(pd_core_link(p->core, p->now + wait - 1), PD_LINK_REST);
        assert_int_equal(pd_core_link(p->core, p->now + wait), PD_LINK_CONNECT);
        p->now += wait;
    }
    peer_free(p);
}

TEST(comes_back_soon_to_the_same_address_after_a_connection_that_worked)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    size_t url = p->core->link.url;

    pd_core_down(p->core, p->now, "cut");
    assert_int_equal(p->core->link.url, url);
    assert_in_range(pd_core_next(p->core) - p->now, SECOND / 40, SECOND / 20);
    peer_free(p);
}

TEST(sends_a_heartbeat_when_nothing_else_was_sent)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    peer_frame l;

    assert_int_equal(pd_core_next(p->core), p->now + SECOND);
    p->now += SECOND - 1;
    pd_core_tick(p->core, p->now);
    peer_expect_silence(p);
    p->now += 1;
    pd_core_tick(p->core, p->now);
    l = peer_expect(p, PD_HEARTBEAT);
    assert_int_equal(peer_reply_ok(p, &l.prefix), PD_OK);
    peer_frame_drop(&l);
    assert_int_equal(pd_core_next(p->core), p->now + SECOND);
    peer_free(p);
}

TEST(drops_a_connection_that_owes_an_answer_and_is_silent)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    uint64_t since = p->now;
    peer_frame l;

    while (pd_core_link(p->core, p->now) == PD_LINK_KEEP && p->now < since + 60 * SECOND) {
        p->now = pd_core_next(p->core);
        pd_core_tick(p->core, p->now);
        while (peer_take(p, &l))
            peer_frame_drop(&l); /* takes the client's heartbeats from the connection; the
                                                       * server answers none of them */
    }
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    assert_in_range(p->now - since, 4 * SECOND, 5 * SECOND);
    peer_free(p);
}

TEST(drops_a_connection_that_takes_nothing_and_is_silent)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    float g[4] = { 1, 2, 3, 4 };
    pd_item item = { .param = 0, .gradient = g };
    uint64_t since = p->now;
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    assert_true(pd_core_next(p->core) <= since + 5 * SECOND); /* the push stays unsent, since the connection takes no
                                                               * bytes */
    p->now = since + 5 * SECOND;
    pd_core_tick(p->core, p->now);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_free(p);
}

TEST(a_push_that_waits_long_for_its_round_is_kept_alive_by_heartbeats)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    float g[4] = { 1, 2, 3, 4 };
    pd_item item = { .param = 0, .gradient = g };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame push, l;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    push = peer_expect(p, PD_PUSH);
    for (int i = 0; i < 100; i++) {
        p->now = pd_core_next(p->core);
        pd_core_tick(p->core, p->now);
        l = peer_expect(p, PD_HEARTBEAT);
        assert_int_equal(peer_reply_ok(p, &l.prefix), PD_OK);
        peer_frame_drop(&l);
    }
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_KEEP);
    peer_reply_data(p, &push.prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_frame_drop(&push);
    peer_free(p);
}

TEST(sends_the_identical_bytes_again_on_the_next_connection)
{
    static const int64_t sizes[] = { 2 * CHUNK, 3 };
    peer *p = peer_running(sizes, 2);
    float g[2 * CHUNK], w[2 * CHUNK], h[3] = { 7, 8, 9 }, v[3];
    pd_item items[] = { { .param = 0, .gradient = g, .weights = w }, { .param = 1, .gradient = h, .weights = v } };
    pd_ticket_id ticket, barrier;
    pd_error err;
    peer_frame before[4], after;

    for (int i = 0; i < 2 * CHUNK; i++) g[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_core_barrier(p->core, &barrier, &err), PD_OK);
    for (int i = 0; i < 4; i++) assert_true(peer_take(p, &before[i]));
    peer_reply_data(p, &before[1].prefix, 1, 1, 1, g, CHUNK); /* the server answers one of four frames, so the client
                                                               * does not send this frame again */
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 2, 1);
    for (int i = 0; i < 4; i++) {
        if (i == 1) continue;
        assert_true(peer_take(p, &after));
        assert_int_equal(after.bytes, before[i].bytes);
        assert_memory_equal(after.at, before[i].at, after.bytes);
        peer_frame_drop(&after);
    }
    peer_expect_silence(p);
    assert_int_equal(pd_core_stats(p->core).resent, 3);
    assert_int_equal(pd_core_stats(p->core).connects, 2);
    for (int i = 0; i < 4; i++) peer_frame_drop(&before[i]);
    peer_free(p);
}

TEST(a_frame_cut_at_any_byte_is_sent_whole_on_the_next_connection)
{
    static const int64_t sizes[] = { 5 };

    for (size_t at = 1; at < 90; at++) {
        peer *p = peer_running(sizes, 1);
        float g[5] = { 1, 2, 3, 4, 5 };
        pd_item item = { .param = 0, .gradient = g };
        pd_ticket_id ticket;
        pd_error err;
        peer_frame l;

        assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
        peer_pump(p, at);
        peer_cut(p);
        peer_connect(p);
        peer_welcome(p);
        peer_answer_declare(p, 1, 0);
        l = peer_expect(p, PD_PUSH);
        assert_memory_equal(l.payload, g, sizeof g);
        peer_expect_silence(p);
        peer_frame_drop(&l);
        peer_free(p);
    }
}

TEST(repeats_its_declaration_before_any_other_request)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_running(sizes, 1);
    pd_ticket_id barrier;
    pd_error err;
    peer_frame l;

    peer_cut(p);
    /* the barrier is requested while there is no connection */
    assert_int_equal(pd_core_barrier(p->core, &barrier, &err), PD_OK);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 9);
    assert_int_equal(pd_core_step(p->core, 0), 9);
    l = peer_expect(p, PD_BARRIER);
    assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, 1);
    peer_reply_ok(p, &l.prefix);
    assert_int_equal(peer_finish(p, barrier, &err), PD_OK);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_declaration_refused_can_be_mended_on_a_fresh_connection)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, 1);
    l = peer_expect(p, PD_DECLARE);
    peer_refuse(p, &l.prefix, PD_RESOURCE_EXHAUSTED, "max_total_bytes");
    assert_int_equal(peer_finish(p, ticket, &err), PD_RESOURCE_EXHAUSTED);
    peer_frame_drop(&l);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_cut(p);
    ticket = peer_declare(p, sizes, 1);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_free(p);
}

TEST(a_request_that_a_draining_server_refuses_goes_to_the_next_one)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_running(sizes, 1);
    float g[2] = { 1, 2 };
    pd_item item = { .param = 0, .gradient = g };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    peer_refuse(p, &l.prefix, PD_UNAVAILABLE, "draining: no new step");
    assert_false(pd_core_done(p->core, ticket));
    assert_string_equal(p->core->link.reason, "draining: no new step");
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 0);
    l = peer_expect(p, PD_PUSH);
    peer_reply_data(p, &l.prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(initial_weights_whose_reply_was_lost_are_not_sent_again)
{
    static const int64_t sizes[] = { 2 };
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared has_not = PARAMD__DECLARED__INIT, *one[] = { &has_not };
    peer *p = peer_new(&peer_first);
    float a[2] = { 1, 2 };
    void *weights[] = { a };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 1);
    l = peer_expect(p, PD_DECLARE);
    message.parameters = one;
    message.n_parameters = 1;
    message.must_init = true;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
    assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_INIT);
    peer_frame_drop(&l);
    peer_cut(p);
    peer_connect(p);
    peer_welcome(p);
    peer_answer_declare(p, 1, 0); /* the reply says that the parameter is initialized */
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_expect_silence(p);
    peer_free(p);
}

TEST(barriers_are_numbered_and_leaving_ends_the_handle)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_running(sizes, 1);
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_OK);
        l = peer_expect(p, PD_BARRIER);
        assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, i);
        peer_reply_ok(p, &l.prefix);
        assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
        peer_frame_drop(&l);
    }
    assert_int_equal(pd_core_leave(p->core, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_LEAVE);
    peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    peer_free(p);
}

TEST(a_refused_barrier_does_not_count)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_running(sizes, 1);
    pd_ticket_id first, second;
    peer_frame l;

    assert_int_equal(pd_core_barrier(p->core, &first, NULL), PD_OK);
    l = peer_expect(p, PD_BARRIER);
    peer_refuse(p, &l.prefix, PD_RESOURCE_EXHAUSTED, "no memory");
    peer_frame_drop(&l);
    assert_int_equal(peer_finish(p, first, NULL), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(pd_core_barrier(p->core, &second, NULL), PD_OK);
    l = peer_expect(p, PD_BARRIER);
    assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, 1);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(sends_initial_weights_of_parameters_that_are_not_initialised)
{
    static const int64_t sizes[] = { 2, 3 };
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared has = PARAMD__DECLARED__INIT, has_not = PARAMD__DECLARED__INIT, *both[] = { &has, &has_not };
    peer *p = peer_new(&peer_first);
    float a[2] = { 1, 2 }, b[3] = { 3, 4, 5 };
    void *weights[] = { a, b };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, 2);
    l = peer_expect(p, PD_DECLARE);
    has.initialised = true;
    message.parameters = both;
    message.n_parameters = 2;
    message.must_init = true;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
    assert_true(p->core->must_init);
    assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_INIT);
    assert_int_equal(((Paramd__InitRequest *)l.message)->n_pieces, 1);
    assert_int_equal(((Paramd__InitRequest *)l.message)->pieces[0]->handle, 1);
    assert_memory_equal(l.payload, b, sizeof b);
    peer_reply_ok(p, &l.prefix);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_frame_drop(&l);
    peer_free(p);
}

/* Connects, and answers the Declare of one parameter whose initial weights are averaged; `gave`: this rank has given
 * its own. */
static void come_to_mean(peer *p, bool gave)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared declared = PARAMD__DECLARED__INIT, *one[] = { &declared };
    peer_frame l;

    peer_connect(p);
    peer_welcome(p);
    if (!p->core->declared) peer_declare(p, (const int64_t[]){ 2 }, 1);
    l = peer_expect(p, PD_DECLARE);
    declared.initialised = gave;
    message.parameters = one;
    message.n_parameters = 1;
    message.must_init = !gave;
    message.averages_init = true;
    peer_reply(p, &l.prefix, &message.base, NULL, 0);
    peer_frame_drop(&l);
}

static void expect_init(peer *p, const float *weights)
{
    peer_frame l = peer_expect(p, PD_INIT);

    assert_memory_equal(l.payload, weights, 2 * sizeof(float));
    peer_reply_ok(p, &l.prefix);
    peer_frame_drop(&l);
}

TEST(weights_that_a_mean_has_given_up_are_given_again_by_the_call_that_waits_for_it)
{
    float a[2] = { 1, 2 };
    void *weights[] = { a };
    peer *p = peer_new(&peer_first);
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    come_to_mean(p, false);
    assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
    expect_init(p, a);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    peer_cut(p);
    come_to_mean(p, true);
    peer_expect_silence(p);
    peer_cut(p);
    come_to_mean(p, false); /* no call is under way */
    peer_expect_silence(p);
    assert_int_equal(p->core->end.error.code, PD_OK);
    assert_int_equal(pd_core_fetch(p->core, weights, &ticket, &err), PD_OK);
    for (int again = 0; again < 3; again++) {
        l = peer_expect(p, PD_PULL);
        peer_frame_drop(&l);
        expect_init(p, a);
        peer_expect_silence(p);
        peer_cut(p);
        come_to_mean(p, false);
    }
    peer_free(p);
}

TEST(an_operators_question_is_answered_without_declaring)
{
    pd_core_config config = peer_four;
    Paramd__StatusReply status = PARAMD__STATUS_REPLY__INIT;
    peer *p;
    pd_ticket_id ticket;
    pd_error err;
    uint8_t *at;
    size_t bytes;
    peer_frame l;

    config.job = "";
    p = peer_new(&config);
    peer_connect(p);
    peer_welcome(p);
    assert_int_equal(pd_core_call(p->core, PD_STATUS, NULL, &(struct iovec){ NULL, 0 }, 0, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_STATUS);
    status.uptime_ms = 1234;
    peer_reply(p, &l.prefix, &status.base, NULL, 0);
    assert_int_equal(pd_core_finish(p->core, ticket, &at, &bytes, &err), PD_OK);
    assert_int_equal(bytes, protobuf_c_message_get_packed_size(&status.base));
    free(at);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(a_ticket_can_be_waited_for_once)
{
    static const int64_t sizes[] = { 2 };
    peer *p = peer_running(sizes, 1);
    uint8_t *at;
    size_t bytes;
    pd_error err;

    assert_int_equal(pd_core_finish(p->core, 424242, &at, &bytes, &err), PD_NOT_FOUND);
    peer_free(p);
}

/* Answers one piece of a pull with `n` weights of a step. */
static void answer_piece(peer *p, uint64_t least, uint64_t step, size_t n)
{
    peer_frame l = peer_expect(p, PD_PULL);
    const Paramd__PullRequest *pull = l.message;
    float weights[CHUNK];

    for (size_t i = 0; i < n; i++) weights[i] = (float)step;
    assert_int_equal(pull->min_step, least);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 0, step, weights, n), PD_OK);
    peer_frame_drop(&l);
}

TEST(a_parameter_whose_round_closes_between_two_frames_of_a_pull_is_pulled_again)
{
    enum { ELEMENTS = CHUNK + 36 };
    peer *p = peer_running((const int64_t[]){ ELEMENTS }, 1);
    pd_ticket_id ticket;

    p->core->max_pieces = 1; /* each chunk gets a frame of its own */
    p->items[0] = (pd_item){ .param = 0, .weights = p->weights[0] };
    assert_int_equal(pd_core_pull(p->core, p->items, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    answer_piece(p, 0, 0, CHUNK);
    answer_piece(p, 0, 1, ELEMENTS - CHUNK);
    assert_false(pd_core_done(p->core, ticket));
    answer_piece(p, 1, 1, CHUNK);
    answer_piece(p, 1, 1, ELEMENTS - CHUNK);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(p->items[0].step, 1);
    for (size_t i = 0; i < ELEMENTS; i++) assert_float_equal(p->weights[0][i], 1, 0);
    peer_free(p);
}

TEST(where_sets_are_open_a_parameter_that_was_pulled_again_has_the_version_of_its_weights)
{
    enum { ELEMENTS = CHUNK + 36 };
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;

    p->open_sets = true;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, (const int64_t[]){ ELEMENTS }, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    p->core->max_pieces = 1;
    p->items[0] = (pd_item){ .param = 0, .weights = p->weights[0] };
    assert_int_equal(pd_core_pull(p->core, p->items, 1, 1, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    answer_piece(p, 1, 1, CHUNK);
    answer_piece(p, 1, 2, ELEMENTS - CHUNK);
    answer_piece(p, 2, 2, CHUNK);
    answer_piece(p, 2, 2, ELEMENTS - CHUNK);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    assert_int_equal(p->items[0].version, 2);
    peer_free(p);
}

TEST(a_pull_whose_parameter_changes_between_its_frames_again_and_again_ends_with_an_error)
{
    enum { ELEMENTS = CHUNK + 36, TIMES = 5 };
    peer *p = peer_running((const int64_t[]){ ELEMENTS }, 1);
    pd_ticket_id ticket;
    pd_error err;

    p->core->max_pieces = 1;
    p->items[0] = (pd_item){ .param = 0, .weights = p->weights[0] };
    assert_int_equal(pd_core_pull(p->core, p->items, 1, 0, PD_FORM_TRAIN, &ticket, NULL), PD_OK);
    for (uint64_t i = 0; i < TIMES; i++) {
        answer_piece(p, i, i, CHUNK);
        answer_piece(p, i, i + 1, ELEMENTS - CHUNK);
    }
    assert_int_equal(peer_finish(p, ticket, &err), PD_ABORTED);
    assert_non_null(strstr(err.text, "pull again"));
    peer_free(p);
}
