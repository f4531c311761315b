/* Tests tensors in the client's core: which frames are sent, where replies are written, and the effect of refusals. */
#include "test.h"
#include "peer.h"

TEST(a_push_carries_the_callers_bytes_at_multiples_of_64)
{
    static const int64_t sizes[] = { 3, 0, 1 };
    peer *p = peer_running(sizes, 3);
    float a[3] = { 1, 2, 3 }, b[1] = { 9 };
    pd_item items[] = { { .param = 2, .gradient = b }, { .param = 1, .gradient = a }, { .param = 0, .gradient = a } };
    pd_push_options options = { .weight = 8, .presummed = true, .hypers = (const char *[]){ "lr=0.25", NULL } };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;
    Paramd__PushRequest *push;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, items, 3, &options, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    push = l.message;
    assert_int_equal(push->step, 1);
    assert_true(push->weight == 8 && push->presummed && !push->zero_weight);
    assert_string_equal(push->hypers[0]->name, "lr");
    assert_string_equal(push->hypers[0]->value, "0.25");
    assert_int_equal(push->n_pieces, 3);
    assert_int_equal(push->pieces[0]->handle, 2);
    assert_int_equal(push->pieces[2]->handle, 0);
    assert_int_equal(push->pieces[2]->offset, 64);
    assert_int_equal(l.prefix.payload_bytes, 64 + sizeof a);
    assert_memory_equal(l.payload, b, sizeof b);
    assert_memory_equal(l.payload + 64, a, sizeof a);
    assert_int_equal(peer_reply_data(p, &l.prefix, 3, 1, 1, NULL, 0), PD_OK);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    assert_int_equal(items[1].outcome, 1);
    assert_int_equal(items[1].version, 1);
    assert_int_equal(pd_core_step(p->core, 2), 1);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(weights_land_in_the_callers_buffers_split_at_every_byte)
{
    static const int64_t sizes[] = { 3, 5 };

    for (size_t split = 1; split < 120; split += split < 70 ? 1 : 7) {
        peer *p = peer_running(sizes, 2);
        float g[8] = { 0 }, w[8] = { 0 }, sent[16 + 5];
        pd_item items[] = { { .param = 0, .gradient = g, .weights = w },
                            { .param = 1, .gradient = g + 3, .weights = w + 3 } };
        pd_ticket_id ticket;
        pd_error err;
        peer_frame l;

        for (int i = 0; i < 21; i++) sent[i] = (float)i;
        p->split = split;
        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
        l = peer_expect(p, PD_PUSH_PULL);
        assert_int_equal(peer_reply_data(p, &l.prefix, 2, 1, 1, sent, 21), PD_OK);
        assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
        for (int i = 0; i < 3; i++) assert_true(w[i] == (float)i);
        for (int i = 0; i < 5; i++) assert_true(w[3 + i] == (float)(16 + i));
        peer_frame_drop(&l);
        peer_free(p);
    }
}

TEST(a_large_tensor_travels_a_chunk_a_frame_and_answers_come_in_any_order)
{
    static const int64_t sizes[] = { 2 * CHUNK + 7, 1 };
    peer *p = peer_running(sizes, 2);
    float g[2 * CHUNK + 7], w[2 * CHUNK + 7], one = 1, own;
    pd_item items[] = { { .param = 0, .gradient = g, .weights = w },
                        { .param = 1, .gradient = &one, .weights = &own } };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l[4];

    for (int i = 0; i < 2 * CHUNK + 7; i++) g[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    for (int i = 0; i < 4; i++) {
        Paramd__PushRequest *push;

        l[i] = peer_expect(p, PD_PUSH_PULL);
        push = l[i].message;
        assert_int_equal(push->n_pieces, 1);
        assert_int_equal(push->pieces[0]->handle, i == 3);
        assert_int_equal(push->pieces[0]->first, i == 3 ? 0 : i * CHUNK);
        assert_int_equal(push->pieces[0]->count, i == 3 ? 1 : i == 2 ? 7 : CHUNK);
    }
    for (int i = 3; i >= 0; i--) {
        assert_false(pd_core_done(p->core, ticket));
        assert_int_equal(
            peer_reply_data(p, &l[i].prefix, 1, 1, 1, (float *)l[i].payload, l[i].prefix.payload_bytes / sizeof(float)),
            PD_OK);
    }
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    assert_memory_equal(w, g, sizeof g);
    assert_true(own == 1);
    for (int i = 0; i < 4; i++) peer_frame_drop(&l[i]);
    peer_free(p);
}

static size_t frames_of_a_push(size_t n, uint64_t max_payload, uint32_t max_pieces)
{
    int64_t sizes[4096];
    float g[16] = { 0 };
    pd_item *items = calloc(n, sizeof *items);
    peer *p = peer_new(&peer_four);
    pd_ticket_id ticket;
    pd_error err;
    size_t frames = 0, pieces = 0;
    peer_frame l;

    for (size_t i = 0; i < n; i++) sizes[i] = 16;
    for (size_t i = 0; i < n; i++) items[i] = (pd_item){ .param = i, .gradient = g };
    peer_connect(p);
    peer_welcome_with(p, max_payload, max_pieces);
    peer_declare(p, sizes, n);
    peer_answer_declare(p, n, UINT64_MAX / 2);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, items, n, NULL, &ticket, &err), PD_OK);
    for (; peer_take(p, &l); frames++) {
        Paramd__PushRequest *push = l.message;

        assert_true(l.prefix.payload_bytes <= max_payload);
        assert_true(push->n_pieces <= max_pieces);
        for (size_t i = 0; i < push->n_pieces; i++) assert_int_equal(push->pieces[i]->handle, pieces + i);
        pieces += push->n_pieces;
        peer_frame_drop(&l);
        pd_arena_reset(p->arena);
    }
    assert_int_equal(pieces, n);
    peer_free(p);
    free(items);
    return frames;
}

TEST(small_tensors_fill_frames_up_to_each_limit_in_order)
{
    assert_int_equal(frames_of_a_push(100, 1 << 20, 1024), 1);
    assert_int_equal(frames_of_a_push(100, 1 << 20, 30), 4);    /* the first limit is tensors per frame */
    assert_int_equal(frames_of_a_push(100, 64 * 10, 1024), 10); /* the first limit is bytes per payload */
    assert_true(frames_of_a_push(4000, 1 << 20, 100000) >= 3);  /* the first limit is 64 KiB per header */
}

TEST(declares_many_parameters_in_several_frames)
{
    enum { N = 4000 };
    static int64_t sizes[N];
    peer *p;

    for (int i = 0; i < N; i++) sizes[i] = 2;
    p = peer_new(&peer_four);
    peer_connect(p);
    peer_welcome(p);
    peer_declare(p, sizes, N);
    peer_answer_declare(p, N, 12);
    assert_int_equal(pd_core_step(p->core, N - 1), 12);
    peer_free(p);
}

TEST(parameters_at_different_steps_travel_in_different_frames)
{
    static const int64_t sizes[] = { 1, 1, 1 };
    peer *p = peer_running(sizes, 3);
    float g = 1;
    pd_item first = { .param = 1, .gradient = &g },
            all[] = { { 0, &g, NULL, 0, 0, 0 }, { 1, &g, NULL, 0, 0, 0 }, { 2, &g, NULL, 0, 0, 0 } };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &first, 1, NULL, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PUSH);
    peer_reply_data(p, &l.prefix, 1, 1, 1, NULL, 0);
    peer_frame_drop(&l);
    peer_finish(p, ticket, &err);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, all, 3, NULL, &ticket, &err), PD_OK);
    for (int i = 0; i < 3; i++) {
        l = peer_expect(p, PD_PUSH);
        assert_int_equal(((Paramd__PushRequest *)l.message)->step, i == 1 ? 2 : 1);
        peer_frame_drop(&l);
    }
    peer_free(p);
}

TEST(an_absent_gradient_is_marked_and_its_weights_are_pulled)
{
    static const int64_t sizes[] = { 2, 2 };
    peer *p = peer_running(sizes, 2);
    float g[2] = { 1, 2 }, w[2], v[2], sent[2] = { 5, 6 };
    pd_item items[] = { { .param = 0, .weights = w }, { .param = 1, .gradient = g, .weights = v } };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame push, pull;

    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    push = peer_expect(p, PD_PUSH_PULL);
    pull = peer_expect(p, PD_PULL);
    assert_true(((Paramd__PushRequest *)push.message)->pieces[0]->absent);
    assert_int_equal(((Paramd__PullRequest *)pull.message)->min_step, 1);
    assert_int_equal(((Paramd__PullRequest *)pull.message)->wants[0]->handle, 0);
    peer_reply_data(p, &push.prefix, 2, 3, 1, sent, 2);
    assert_false(pd_core_done(p->core, ticket));
    peer_reply_data(p, &pull.prefix, 1, 0, 1, sent, 2);
    assert_int_equal(peer_finish(p, ticket, &err), PD_OK);
    assert_int_equal(items[0].outcome, 3);
    assert_memory_equal(w, sent, sizeof w);
    assert_memory_equal(v, sent, sizeof v);
    peer_frame_drop(&push);
    peer_frame_drop(&pull);
    peer_free(p);
}

TEST(refuses_a_second_push_of_a_parameter_under_way)
{
    static const int64_t sizes[] = { 1, 1 };
    peer *p = peer_running(sizes, 2);
    float g = 1;
    pd_item one = { .param = 1, .gradient = &g }, two[] = { { 0, &g, NULL, 0, 0, 0 }, { 1, &g, NULL, 0, 0, 0 } },
            other = { .param = 0, .gradient = &g };
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &one, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, two, 2, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "p1"));
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &other, 1, NULL, &ticket, &err),
                     PD_OK); /* the push of p0 and p1 was refused as a whole, so p0 can be pushed again */
    peer_free(p);
}

/* A push of two tensors, p0 and p1, in three frames. The server refuses the third frame, which has the second chunk
 * of p1. */
typedef struct refused {
    peer *p;
    float gradient[CHUNK + 1];
    pd_item items[2];
    pd_ticket_id ticket;
    peer_frame l[3];
} refused;

static void refuse_third(refused *r)
{
    static const int64_t sizes[] = { 1, CHUNK + 1 };

    memset(r, 0, sizeof *r);
    r->p = peer_running(sizes, 2);
    for (size_t i = 0; i < 2; i++) r->items[i] = (pd_item){ .param = i, .gradient = r->gradient };
    assert_int_equal(pd_core_push(r->p->core, PD_PUSH, r->items, 2, NULL, &r->ticket, NULL), PD_OK);
    for (int i = 0; i < 3; i++) r->l[i] = peer_expect(r->p, PD_PUSH);
    peer_refuse(r->p, &r->l[2].prefix, PD_INVALID_ARGUMENT, "p1: element 64 is not finite");
}

static void refused_drop(refused *r)
{
    for (int i = 0; i < 3; i++) peer_frame_drop(&r->l[i]);
    peer_free(r->p);
}

TEST(a_refused_frame_fails_its_items_and_no_others)
{
    refused r;
    pd_error err;
    peer_frame again;

    refuse_third(&r);
    assert_false(pd_core_done(r.p->core, r.ticket)); /* the push of p0 still waits for its round; the push of p1 is
                                                      * given up */
    peer_reply_data(r.p, &r.l[0].prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(peer_finish(r.p, r.ticket, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "p1: element 64 is not finite");
    assert_int_equal(r.items[0].outcome, 1);
    assert_int_equal(r.items[1].outcome, PD_INVALID_ARGUMENT);
    /* the late reply to the second frame is ignored, since the push of p1 has already failed */
    assert_int_equal(peer_reply_data(r.p, &r.l[1].prefix, 1, 1, 1, NULL, 0), PD_OK);
    assert_int_equal(pd_core_push(r.p->core, PD_PUSH, &r.items[1], 1, NULL, &r.ticket, &err), PD_OK);
    again = peer_expect(r.p, PD_PUSH);
    assert_int_equal(((Paramd__PushRequest *)again.message)->step, 1); /* p1 is pushed for the same step again */
    peer_frame_drop(&again);
    refused_drop(&r);
}

/* After the first error, a push of several parameters waits at most one second for the others.
 *
 * Without this limit, ranks could block each other. This rank would wait for the round of p0, and could not push p1
 * again before that. Another rank would wait for p1 before it pushes p0. */
TEST(a_ticket_waits_a_second_after_its_first_error)
{
    refused r;
    pd_error err;

    refuse_third(&r);
    pd_core_tick(r.p->core, r.p->now);
    assert_false(pd_core_done(r.p->core, r.ticket));
    assert_int_equal(pd_core_next(r.p->core), r.p->now + SECOND);
    pd_core_tick(r.p->core, r.p->now + SECOND);
    assert_int_equal(peer_finish(r.p, r.ticket, &err), PD_INVALID_ARGUMENT);
    for (int i = 0; i < 2; i++) assert_int_equal(r.items[i].outcome, PD_INVALID_ARGUMENT);
    assert_int_equal(pd_core_push(r.p->core, PD_PUSH, r.items, 2, NULL, &r.ticket, &err), PD_OK);
    refused_drop(&r);
}

/* Answers a push of two tensors. The outcome of the first tensor says that its step was refused. */
static void answer_refused(peer *p, const pd_prefix *to, const char *why)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome outcome[2], *list[2] = { &outcome[0], &outcome[1] };

    for (int i = 0; i < 2; i++) {
        paramd__outcome__init(&outcome[i]);
        outcome[i].outcome = i == 0 ? 4 : 1;
        outcome[i].step = 1;
        outcome[i].version = i == 0 ? 0 : 1;
    }
    outcome[0].why = (char *)why;
    message.outcomes = list;
    message.n_outcomes = 2;
    assert_int_equal(peer_reply(p, to, &message.base, NULL, 0), PD_OK);
}

TEST(a_step_that_the_optimizer_refuses_ends_the_ticket_with_its_reason)
{
    static const int64_t sizes[] = { 1, 1 };
    static const char *const reasons[] = { "p0: the root is not finite", "" }, *const texts[] = {
        "p0: the root is not finite", "parameter p0: the optimizer refused step 1"
    };

    for (int i = 0; i < 2; i++) {
        peer *p = peer_running(sizes, 2);
        float g = 0;
        pd_item items[] = { { .param = 0, .gradient = &g }, { .param = 1, .gradient = &g } };
        pd_ticket_id ticket;
        pd_error err;
        peer_frame l;

        assert_int_equal(pd_core_push(p->core, PD_PUSH, items, 2, NULL, &ticket, &err), PD_OK);
        l = peer_expect(p, PD_PUSH);
        answer_refused(p, &l.prefix, reasons[i]);
        peer_frame_drop(&l);
        assert_int_equal(peer_finish(p, ticket, &err), PD_FAILED_PRECONDITION);
        assert_string_equal(err.text, texts[i]);
        assert_int_equal(items[0].outcome, 4);
        assert_int_equal(items[1].outcome, 1);
        assert_int_equal(pd_core_step(p->core, 0), 1);
        assert_int_equal(pd_core_push(p->core, PD_PUSH, items, 2, NULL, &ticket, &err), PD_OK);
        l = peer_expect(p, PD_PUSH);
        assert_int_equal(((Paramd__PushRequest *)l.message)->step, 2);
        peer_frame_drop(&l);
        peer_free(p);
    }
}

TEST(a_ticket_refused_before_its_frame_is_sent_waits_until_it_is_sent)
{
    static const int64_t sizes[] = { CHUNK };
    peer *p = peer_running(sizes, 1);
    float g[CHUNK] = { 0 };
    pd_item item = { .param = 0, .gradient = g };
    pd_prefix to = { .method = PD_PUSH };
    pd_ticket_id ticket;
    pd_error err;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(peer_pump(p, 100), 100);
    assert_int_equal(pd_prefix_read(&to, p->wire, UINT64_MAX / 2, &err), PD_OK);
    peer_refuse(p, &to, PD_INVALID_ARGUMENT, "no");
    assert_false(pd_core_done(p->core, ticket)); /* the rest of the frame is still to be sent from the gradient, so
                                                  * the push is not done */
    peer_pump(p, SIZE_MAX);
    assert_int_equal(peer_finish(p, ticket, &err), PD_INVALID_ARGUMENT);
    peer_free(p);
}

/* Flips one bit of a reply. The core accepts the reply, refuses it, or waits for more bytes. No byte is written outside
 * the caller's weights (the sanitizer checks). */
TEST(an_answer_with_any_bit_turned_does_no_harm)
{
    static const int64_t sizes[] = { 3, 5 };
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *both[] = { &one, &one };
    float payload[16 + 5] = { 1 };
    struct iovec iov = { payload, sizeof payload };
    size_t bytes = 1;

    one.outcome = 1;
    one.step = one.version = 300;
    message.outcomes = both;
    message.n_outcomes = 2;
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        peer *p = peer_running(sizes, 2);
        float *g = calloc(8, sizeof *g), *a = malloc(3 * sizeof *a), *b = malloc(5 * sizeof *b);
        pd_item items[] = { { .param = 0, .gradient = g, .weights = a }, { .param = 1, .gradient = g, .weights = b } };
        pd_ticket_id ticket;
        pd_error err;
        uint8_t *frame;
        peer_frame l;

        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
        l = peer_expect(p, PD_PUSH_PULL);
        assert_int_equal(pd_frame_pack(&frame, &bytes, PD_PUSH_PULL, PD_FLAG_REPLY, l.prefix.request, &message.base,
                                       &iov, 1, sizeof payload),
                         PD_OK);
        frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (peer_feed(p, frame, bytes) == PD_OK) peer_feed(p, (uint8_t *)payload, sizeof payload);
        free(frame);
        peer_frame_drop(&l);
        peer_free(p);
        free(g);
        free(a);
        free(b);
    }
}

TEST(ends_when_a_reply_has_another_length_than_the_request)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    float w[4] = { 0 }, sent[200] = { 1, 1, 1, 1, 1 };
    pd_item item = { .param = 0, .weights = w };
    pd_ticket_id ticket;
    pd_error err;
    peer_frame l;

    assert_int_equal(pd_core_pull(p->core, &item, 1, 0, PD_FORM_TRAIN, &ticket, &err), PD_OK);
    l = peer_expect(p, PD_PULL);
    assert_int_equal(peer_reply_data(p, &l.prefix, 1, 0, 0, sent, 200), PD_INTERNAL);
    assert_int_equal(peer_finish(p, ticket, &err), PD_INTERNAL);
    assert_true(w[0] == 0);
    peer_frame_drop(&l);
    peer_free(p);
}

TEST(ends_when_another_process_has_taken_its_rank)
{
    static const int64_t sizes[] = { 4 };
    peer *p = peer_running(sizes, 1);
    pd_prefix connection = { .method = PD_HEARTBEAT, .request = 0 };
    pd_ticket_id ticket;
    pd_error err;

    peer_refuse(p, &connection, PD_ABORTED, "rank 2 was taken over by host:99");
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_ABORTED);
    assert_string_equal(err.text, "rank 2 was taken over by host:99");
    peer_free(p);
}
