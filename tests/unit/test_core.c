/* The core against a scripted peer: frames in, frames out; no sockets, and the time is what the test says. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "core.h"

#define SECOND UINT64_C(1000000000)
enum { CHUNK = 64, WIRE_BYTES = 1 << 20, MOST = 8 };

/* The server's end of the wire, and a framer that feeds the core. */
typedef struct peer {
    pd_core   *core;
    pd_framer *framer;
    pd_arena  *arena;
    uint64_t   now;
    size_t     split;                   /* bytes given to the core at a time */
    size_t     fed;                     /* results of the framer that were errors */
    uint8_t    wire[WIRE_BYTES];        /* what the core has sent and was not looked at */
    size_t     n;
} peer;

/* One frame of the core, taken from the wire. */
typedef struct letter {
    pd_prefix prefix;
    uint8_t  *at;                       /* prefix, header and payload */
    size_t    bytes;
    void     *message;                  /* in the peer's arena */
    uint8_t  *payload;
} letter;

static const pd_core_config four = { .job = "job", .label = "test:1", .rank = 2, .world_size = 4, .nonce = 77, .urls = 2 };

static peer *new_peer(const pd_core_config *config)
{
    peer *p = calloc(1, sizeof *p);
    pd_error err;

    assert_non_null(p);
    assert_int_equal(pd_core_new(&p->core, config, &err), PD_OK);
    p->arena = pd_arena_new(PD_ARENA_BUDGET);
    p->now = SECOND;
    p->split = WIRE_BYTES;
    return p;
}

static void free_peer(peer *p)
{
    pd_framer_free(p->framer);
    pd_core_free(p->core);
    pd_arena_free(p->arena);
    free(p);
}

static void connect_core(peer *p)
{
    const pd_framer_user user = { .arg = p->core, .header = pd_core_header, .frame = pd_core_frame };

    pd_framer_free(p->framer);
    p->framer = pd_framer_new(&user, UINT64_MAX / 2);
    p->n = 0;
    pd_core_up(p->core, p->now);
}

static void cut(peer *p)
{
    pd_core_down(p->core, p->now, "cut");
    p->now = pd_core_next(p->core);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
}

/* Moves at most `bytes` of what the core wants to send to the wire; returns how many. */
static size_t pump(peer *p, size_t bytes)
{
    struct iovec iov[7];
    size_t moved = 0;
    int n;

    while (moved < bytes && (n = pd_core_output(p->core, iov, 7, 4096)) > 0) {
        size_t now = 0;
        for (int i = 0; i < n && moved < bytes; i++) {
            size_t part = iov[i].iov_len < bytes - moved ? iov[i].iov_len : bytes - moved;
            assert_true(p->n + part <= WIRE_BYTES);
            memcpy(p->wire + p->n, iov[i].iov_base, part);
            p->n += part;
            moved += part;
            now += part;
        }
        pd_core_sent(p->core, now, p->now);
    }
    return moved;
}

static bool take(peer *p, letter *out)
{
    size_t bytes;
    pd_error err;

    pump(p, SIZE_MAX);
    memset(out, 0, sizeof *out);
    if (p->n == 0) return false;
    assert_int_equal(pd_prefix_read(&out->prefix, p->wire, UINT64_MAX / 2, &err), PD_OK);
    bytes = PD_PREFIX_BYTES + out->prefix.header_bytes + out->prefix.payload_bytes;
    assert_true(p->n >= bytes);
    out->at = malloc(bytes);
    out->bytes = bytes;
    memcpy(out->at, p->wire, bytes);
    memmove(p->wire, p->wire + bytes, p->n - bytes);
    p->n -= bytes;
    out->payload = out->at + PD_PREFIX_BYTES + out->prefix.header_bytes;
    assert_int_equal(pd_request_unpack(p->arena, out->prefix.method, out->at + PD_PREFIX_BYTES, out->prefix.header_bytes, &out->message, &err), PD_OK);
    return true;
}

static void drop(letter *l)
{
    free(l->at);
    l->at = NULL;
}

static letter expect(peer *p, unsigned method)
{
    letter l;

    if (!take(p, &l)) fail_msg("expected %s, the core is silent", pd_method_name(method));
    if (l.prefix.method != method) fail_msg("expected %s, got %s", pd_method_name(method), pd_method_name(l.prefix.method));
    return l;
}

static void expect_silence(peer *p)
{
    letter l;
    if (take(p, &l)) fail_msg("expected nothing, got %s", pd_method_name(l.prefix.method));
}

static int feed(peer *p, const uint8_t *at, size_t n)
{
    int rc = PD_OK;

    while (n > 0 && rc == PD_OK) {
        struct iovec iov[8];
        int entries = pd_framer_space(p->framer, iov, 8, p->split);
        size_t used = 0;

        assert_true(entries > 0);
        for (int i = 0; i < entries && n > 0; i++) {
            size_t part = iov[i].iov_len < n ? iov[i].iov_len : n;
            memcpy(iov[i].iov_base, at, part);
            at += part;
            n -= part;
            used += part;
        }
        pd_core_heard(p->core, used, p->now);
        rc = pd_framer_fed(p->framer, used);
    }
    return rc;
}

static int reply(peer *p, const pd_prefix *to, const ProtobufCMessage *message, void *payload, size_t n)
{
    uint8_t *frame;
    size_t bytes;
    struct iovec iov = { payload, n };
    int rc;

    assert_int_equal(pd_frame_pack(&frame, &bytes, to->method, PD_FLAG_REPLY, to->request, message, &iov, n > 0, n), PD_OK);
    rc = feed(p, frame, bytes);
    free(frame);
    if (rc == PD_OK && n > 0) rc = feed(p, payload, n);
    return rc;
}

static int refuse(peer *p, const pd_prefix *to, int code, const char *text)
{
    uint8_t *frame;
    size_t bytes;
    int rc;

    assert_int_equal(pd_frame_pack_error(&frame, &bytes, to->method, to->request, code, text), PD_OK);
    rc = feed(p, frame, bytes);
    free(frame);
    return rc;
}

static int reply_ok(peer *p, const pd_prefix *to)
{
    Paramd__Ok ok = PARAMD__OK__INIT;
    return reply(p, to, &ok.base, NULL, 0);
}

/* Outcomes, one for each of n pieces, all alike; and floats as payload. */
static int reply_data(peer *p, const pd_prefix *to, size_t n, uint32_t outcome, uint64_t step, float *weights, size_t floats)
{
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[2048];

    one.outcome = outcome;
    one.step = one.version = step;
    for (size_t i = 0; i < n; i++) all[i] = &one;
    message.outcomes = all;
    message.n_outcomes = n;
    return reply(p, to, &message.base, weights, floats * sizeof *weights);
}

static void welcome_with(peer *p, uint64_t max_payload, uint32_t max_pieces)
{
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;
    letter l = expect(p, PD_HELLO);

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.server = (char *)"paramd test";
    hello.blas_core = (char *)"core";
    hello.chunk_elements = CHUNK;
    hello.max_payload = max_payload;
    hello.max_pieces = max_pieces;
    hello.heartbeat_ms = 1000;
    hello.timeout_ms = 4000;
    hello.seed = 5;
    assert_int_equal(reply(p, &l.prefix, &hello.base, NULL, 0), PD_OK);
    drop(&l);
}

static void welcome(peer *p)
{
    welcome_with(p, 1 << 20, 1024);
}

static void answer_declare(peer *p, size_t n, uint64_t step)
{
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[4096];
    letter l = expect(p, PD_DECLARE);

    while (!((Paramd__DeclareRequest *)l.message)->last) {
        assert_int_equal(reply(p, &l.prefix, &message.base, NULL, 0), PD_OK);
        drop(&l);
        l = expect(p, PD_DECLARE);
    }
    one.step = step;
    one.initialised = true;
    for (size_t i = 0; i < n; i++) all[i] = &one;
    message.parameters = all;
    message.n_parameters = n;
    assert_int_equal(reply(p, &l.prefix, &message.base, NULL, 0), PD_OK);
    drop(&l);
}

static pd_ticket_id declare(peer *p, const int64_t *sizes, size_t n)
{
    pd_client_param *params = calloc(n, sizeof *params);
    char (*names)[24] = calloc(n, sizeof *names);
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%zu", i);
        params[i] = (pd_client_param){ .name = names[i], .shape = { .rank = 1, .dim = { sizes[i] } } };
    }
    assert_int_equal(pd_core_declare(p->core, params, n, &ticket, &err), PD_OK);
    free(params);
    free(names);
    return ticket;
}

static int finish(peer *p, pd_ticket_id ticket, pd_error *err)
{
    uint8_t *at;
    size_t bytes;
    int rc;

    assert_true(pd_core_done(p->core, ticket));
    rc = pd_core_finish(p->core, ticket, &at, &bytes, err);
    free(at);
    return rc;
}

/* Connected, welcomed, n parameters of those sizes declared, at step 0. */
static peer *running(const int64_t *sizes, size_t n)
{
    peer *p = new_peer(&four);
    pd_ticket_id ticket;
    pd_error err;

    connect_core(p);
    welcome(p);
    ticket = declare(p, sizes, n);
    answer_declare(p, n, 0);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    return p;
}

/* ---- greeting ---- */

static void says_who_it_is_and_becomes_welcome(void **state)
{
    static const char *const options[] = { "nonfinite=reject", NULL }, *const rules[] = { "*bias sgd lr=0.5", "* sgd", NULL };
    pd_core_config config = four;
    peer *p;
    letter l;
    Paramd__HelloRequest *hello;
    (void)state;

    config.options = options;
    config.rules = rules;
    p = new_peer(&config);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_CONNECT);
    connect_core(p);
    l = expect(p, PD_HELLO);
    hello = l.message;
    assert_string_equal(hello->job, "job");
    assert_int_equal(hello->rank, 2);
    assert_int_equal(hello->world_size, 4);
    assert_int_equal(hello->nonce, 77);
    assert_string_equal(hello->options[0]->name, "nonfinite");
    assert_string_equal(hello->options[0]->value, "reject");
    assert_int_equal(hello->n_rules, 2);
    assert_string_equal(hello->rules[0], "*bias sgd lr=0.5");
    assert_false(pd_core_done(p->core, pd_core_welcome_ticket(p->core)));
    drop(&l);
    free_peer(p);
}

static void takes_the_welcome_split_at_every_byte(void **state)
{
    (void)state;
    for (size_t split = 1; split < 80; split++) {
        peer *p = new_peer(&four);
        pd_error err;

        p->split = split;
        connect_core(p);
        welcome(p);
        assert_int_equal(finish(p, pd_core_welcome_ticket(p->core), &err), PD_OK);
        assert_string_equal(pd_core_welcome(p->core)->server, "paramd test");
        assert_int_equal(pd_core_welcome(p->core)->chunk_elements, CHUNK);
        free_peer(p);
    }
}

static void ends_with_the_servers_words_when_hello_is_refused(void **state)
{
    peer *p = new_peer(&four);
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    connect_core(p);
    l = expect(p, PD_HELLO);
    refuse(p, &l.prefix, PD_FAILED_PRECONDITION, "world_size: the job has 2, this worker says 4");
    assert_int_equal(finish(p, pd_core_welcome_ticket(p->core), &err), PD_FAILED_PRECONDITION);
    assert_string_equal(err.text, "world_size: the job has 2, this worker says 4");
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    pd_core_down(p->core, p->now, "dropped");
    assert_int_equal(pd_core_link(p->core, p->now + 3600 * SECOND), PD_LINK_REST);
    drop(&l);
    free_peer(p);
}

static void waits_for_a_server_that_is_going_away(void **state)
{
    peer *p = new_peer(&four);
    letter l;
    (void)state;

    connect_core(p);
    l = expect(p, PD_HELLO);
    refuse(p, &l.prefix, PD_UNAVAILABLE, "draining");
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    cut(p);
    connect_core(p);
    welcome(p);
    assert_true(pd_core_done(p->core, pd_core_welcome_ticket(p->core)));
    drop(&l);
    free_peer(p);
}

static void refuses_an_option_without_a_value(void **state)
{
    static const char *const options[] = { "nonfinite", NULL };
    pd_core_config config = four;
    pd_core *core;
    pd_error err;
    (void)state;

    config.options = options;
    assert_int_equal(pd_core_new(&core, &config, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "nonfinite"));
}

/* ---- time ---- */

static void backs_off_from_50_ms_to_2_s_and_tries_the_addresses_in_turn(void **state)
{
    peer *p = new_peer(&four);
    uint64_t most = SECOND / 20;
    (void)state;

    for (int i = 0; i < 12; i++) {
        uint64_t wait;

        assert_int_equal(pd_core_url(p->core), i % 2);
        pd_core_down(p->core, p->now, "refused");
        wait = pd_core_next(p->core) - p->now;
        assert_in_range(wait, most / 2, most);
        assert_int_equal(pd_core_link(p->core, p->now + wait - 1), PD_LINK_REST);
        assert_int_equal(pd_core_link(p->core, p->now + wait), PD_LINK_CONNECT);
        p->now += wait;
        most = most * 2 < 2 * SECOND ? most * 2 : 2 * SECOND;
    }
    free_peer(p);
}

static void comes_back_soon_to_the_same_address_after_a_connection_that_worked(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    size_t url = pd_core_url(p->core);
    (void)state;

    pd_core_down(p->core, p->now, "cut");
    assert_int_equal(pd_core_url(p->core), url);
    assert_in_range(pd_core_next(p->core) - p->now, SECOND / 40, SECOND / 20);
    free_peer(p);
}

static void sends_a_heartbeat_when_nothing_else_was_sent(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    letter l;
    (void)state;

    assert_int_equal(pd_core_next(p->core), p->now + SECOND);
    p->now += SECOND - 1;
    pd_core_tick(p->core, p->now);
    expect_silence(p);
    p->now += 1;
    pd_core_tick(p->core, p->now);
    l = expect(p, PD_HEARTBEAT);
    assert_int_equal(reply_ok(p, &l.prefix), PD_OK);
    drop(&l);
    assert_int_equal(pd_core_next(p->core), p->now + SECOND);
    free_peer(p);
}

static void drops_a_connection_that_owes_an_answer_and_is_silent(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    uint64_t since = p->now;
    letter l;
    (void)state;

    while (pd_core_link(p->core, p->now) == PD_LINK_KEEP && p->now < since + 60 * SECOND) {
        p->now = pd_core_next(p->core);
        pd_core_tick(p->core, p->now);
        while (take(p, &l)) drop(&l);                   /* heartbeats, which nobody answers */
    }
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    assert_in_range(p->now - since, 4 * SECOND, 5 * SECOND);
    free_peer(p);
}

static void a_push_that_waits_long_for_its_round_is_kept_alive_by_heartbeats(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    float g[4] = { 1, 2, 3, 4 };
    pd_item item = { .param = 0, .gradient = g };
    pd_ticket_id ticket;
    pd_error err;
    letter push, l;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    push = expect(p, PD_PUSH);
    for (int i = 0; i < 100; i++) {
        p->now = pd_core_next(p->core);
        pd_core_tick(p->core, p->now);
        l = expect(p, PD_HEARTBEAT);
        assert_int_equal(reply_ok(p, &l.prefix), PD_OK);
        drop(&l);
    }
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_KEEP);
    reply_data(p, &push.prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    drop(&push);
    free_peer(p);
}

/* ---- tensors ---- */

static void a_push_carries_the_callers_bytes_at_multiples_of_64(void **state)
{
    static const int64_t sizes[] = { 3, 0, 1 };
    peer *p = running(sizes, 3);
    float a[3] = { 1, 2, 3 }, b[1] = { 9 };
    pd_item items[] = { { .param = 2, .gradient = b }, { .param = 1, .gradient = a }, { .param = 0, .gradient = a } };
    pd_push_options options = { .weight = 8, .presummed = true, .hypers = (const char *[]){ "lr=0.25", NULL } };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    Paramd__PushRequest *push;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, items, 3, &options, &ticket, &err), PD_OK);
    l = expect(p, PD_PUSH);
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
    assert_int_equal(reply_data(p, &l.prefix, 3, 1, 1, NULL, 0), PD_OK);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    assert_int_equal(items[1].outcome, 1);
    assert_int_equal(items[1].version, 1);
    assert_int_equal(pd_core_step(p->core, 2), 1);
    drop(&l);
    free_peer(p);
}

static void weights_land_in_the_callers_buffers_split_at_every_byte(void **state)
{
    static const int64_t sizes[] = { 3, 5 };
    (void)state;

    for (size_t split = 1; split < 120; split += split < 70 ? 1 : 7) {
        peer *p = running(sizes, 2);
        float g[8] = { 0 }, w[8] = { 0 }, sent[16 + 5];
        pd_item items[] = { { .param = 0, .gradient = g, .weights = w }, { .param = 1, .gradient = g + 3, .weights = w + 3 } };
        pd_ticket_id ticket;
        pd_error err;
        letter l;

        for (int i = 0; i < 21; i++) sent[i] = (float)i;
        p->split = split;
        assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
        l = expect(p, PD_PUSH_PULL);
        assert_int_equal(reply_data(p, &l.prefix, 2, 1, 1, sent, 21), PD_OK);
        assert_int_equal(finish(p, ticket, &err), PD_OK);
        for (int i = 0; i < 3; i++) assert_true(w[i] == (float)i);
        for (int i = 0; i < 5; i++) assert_true(w[3 + i] == (float)(16 + i));
        drop(&l);
        free_peer(p);
    }
}

static void a_large_tensor_travels_a_chunk_a_frame_and_answers_come_in_any_order(void **state)
{
    static const int64_t sizes[] = { 2 * CHUNK + 7, 1 };
    peer *p = running(sizes, 2);
    float g[2 * CHUNK + 7], w[2 * CHUNK + 7], one = 1, own;
    pd_item items[] = { { .param = 0, .gradient = g, .weights = w }, { .param = 1, .gradient = &one, .weights = &own } };
    pd_ticket_id ticket;
    pd_error err;
    letter l[4];
    (void)state;

    for (int i = 0; i < 2 * CHUNK + 7; i++) g[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    for (int i = 0; i < 4; i++) {
        Paramd__PushRequest *push;

        l[i] = expect(p, PD_PUSH_PULL);
        push = l[i].message;
        assert_int_equal(push->n_pieces, 1);
        assert_int_equal(push->pieces[0]->handle, i == 3);
        assert_int_equal(push->pieces[0]->first, i == 3 ? 0 : i * CHUNK);
        assert_int_equal(push->pieces[0]->count, i == 3 ? 1 : i == 2 ? 7 : CHUNK);
    }
    for (int i = 3; i >= 0; i--) {
        assert_false(pd_core_done(p->core, ticket));
        assert_int_equal(reply_data(p, &l[i].prefix, 1, 1, 1, (float *)l[i].payload, l[i].prefix.payload_bytes / sizeof(float)), PD_OK);
    }
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    assert_memory_equal(w, g, sizeof g);
    assert_true(own == 1);
    for (int i = 0; i < 4; i++) drop(&l[i]);
    free_peer(p);
}

static size_t frames_of_a_push(size_t n, uint64_t max_payload, uint32_t max_pieces)
{
    int64_t sizes[4096];
    float g[16] = { 0 };
    pd_item *items = calloc(n, sizeof *items);
    peer *p = new_peer(&four);
    pd_ticket_id ticket;
    pd_error err;
    size_t frames = 0, pieces = 0;
    letter l;

    for (size_t i = 0; i < n; i++) sizes[i] = 16;
    for (size_t i = 0; i < n; i++) items[i] = (pd_item){ .param = i, .gradient = g };
    connect_core(p);
    welcome_with(p, max_payload, max_pieces);
    declare(p, sizes, n);
    answer_declare(p, n, UINT64_MAX / 2);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, items, n, NULL, &ticket, &err), PD_OK);
    for (; take(p, &l); frames++) {
        Paramd__PushRequest *push = l.message;

        assert_true(l.prefix.payload_bytes <= max_payload);
        assert_true(push->n_pieces <= max_pieces);
        for (size_t i = 0; i < push->n_pieces; i++) assert_int_equal(push->pieces[i]->handle, pieces + i);
        pieces += push->n_pieces;
        drop(&l);
        pd_arena_reset(p->arena);
    }
    assert_int_equal(pieces, n);
    free_peer(p);
    free(items);
    return frames;
}

static void small_tensors_fill_frames_up_to_each_limit_in_order(void **state)
{
    (void)state;
    assert_int_equal(frames_of_a_push(100, 1 << 20, 1024), 1);
    assert_int_equal(frames_of_a_push(100, 1 << 20, 30), 4);            /* pieces in a frame */
    assert_int_equal(frames_of_a_push(100, 64 * 10, 1024), 10);         /* payload */
    assert_true(frames_of_a_push(4000, 1 << 20, 100000) >= 3);          /* the header's 64 KiB */
}

static void declares_many_parameters_in_several_frames(void **state)
{
    enum { N = 4000 };
    static int64_t sizes[N];
    peer *p;
    (void)state;

    for (int i = 0; i < N; i++) sizes[i] = 2;
    p = new_peer(&four);
    connect_core(p);
    welcome(p);
    declare(p, sizes, N);
    answer_declare(p, N, 12);
    assert_int_equal(pd_core_step(p->core, N - 1), 12);
    free_peer(p);
}

static void parameters_at_different_steps_travel_in_different_frames(void **state)
{
    static const int64_t sizes[] = { 1, 1, 1 };
    peer *p = running(sizes, 3);
    float g = 1;
    pd_item first = { .param = 1, .gradient = &g }, all[] = { { 0, &g, NULL, 0, 0, 0 }, { 1, &g, NULL, 0, 0, 0 }, { 2, &g, NULL, 0, 0, 0 } };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &first, 1, NULL, &ticket, &err), PD_OK);
    l = expect(p, PD_PUSH);
    reply_data(p, &l.prefix, 1, 1, 1, NULL, 0);
    drop(&l);
    finish(p, ticket, &err);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, all, 3, NULL, &ticket, &err), PD_OK);
    for (int i = 0; i < 3; i++) {
        l = expect(p, PD_PUSH);
        assert_int_equal(((Paramd__PushRequest *)l.message)->step, i == 1 ? 2 : 1);
        drop(&l);
    }
    free_peer(p);
}

static void an_absent_gradient_is_marked_and_its_weights_are_pulled(void **state)
{
    static const int64_t sizes[] = { 2, 2 };
    peer *p = running(sizes, 2);
    float g[2] = { 1, 2 }, w[2], v[2], sent[2] = { 5, 6 };
    pd_item items[] = { { .param = 0, .weights = w }, { .param = 1, .gradient = g, .weights = v } };
    pd_ticket_id ticket;
    pd_error err;
    letter push, pull;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    push = expect(p, PD_PUSH_PULL);
    pull = expect(p, PD_PULL);
    assert_true(((Paramd__PushRequest *)push.message)->pieces[0]->absent);
    assert_int_equal(((Paramd__PullRequest *)pull.message)->min_step, 1);
    assert_int_equal(((Paramd__PullRequest *)pull.message)->wants[0]->handle, 0);
    reply_data(p, &push.prefix, 2, 3, 1, sent, 2);
    assert_false(pd_core_done(p->core, ticket));
    reply_data(p, &pull.prefix, 1, 0, 1, sent, 2);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    assert_int_equal(items[0].outcome, 3);
    assert_memory_equal(w, sent, sizeof w);
    assert_memory_equal(v, sent, sizeof v);
    drop(&push);
    drop(&pull);
    free_peer(p);
}

static void refuses_a_second_push_of_a_parameter_under_way(void **state)
{
    static const int64_t sizes[] = { 1, 1 };
    peer *p = running(sizes, 2);
    float g = 1;
    pd_item one = { .param = 1, .gradient = &g }, two[] = { { 0, &g, NULL, 0, 0, 0 }, { 1, &g, NULL, 0, 0, 0 } }, other = { .param = 0, .gradient = &g };
    pd_ticket_id ticket;
    pd_error err;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &one, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_core_push(p->core, PD_PUSH, two, 2, NULL, &ticket, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "p1"));
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &other, 1, NULL, &ticket, &err), PD_OK);      /* the refused call took nothing */
    free_peer(p);
}

/* ---- errors ---- */

static void a_refused_frame_fails_its_items_and_no_others(void **state)
{
    static const int64_t sizes[] = { 1, CHUNK + 1 };
    peer *p = running(sizes, 2);
    float g[CHUNK + 1] = { 0 };
    pd_item items[] = { { .param = 0, .gradient = g }, { .param = 1, .gradient = g } };
    pd_ticket_id ticket;
    pd_error err;
    letter l[3];
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, items, 2, NULL, &ticket, &err), PD_OK);
    for (int i = 0; i < 3; i++) l[i] = expect(p, PD_PUSH);
    refuse(p, &l[2].prefix, PD_INVALID_ARGUMENT, "p1: element 64 is not finite");   /* the second chunk of p1 */
    assert_false(pd_core_done(p->core, ticket));                                    /* p0 still waits for its round, p1 is given up */
    reply_data(p, &l[0].prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(finish(p, ticket, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "p1: element 64 is not finite");
    assert_int_equal(items[0].outcome, 1);
    assert_int_equal(items[1].outcome, PD_INVALID_ARGUMENT);
    assert_int_equal(reply_data(p, &l[1].prefix, 1, 1, 1, NULL, 0), PD_OK);         /* too late: nobody waits */
    assert_int_equal(pd_core_push(p->core, PD_PUSH, &items[1], 1, NULL, &ticket, &err), PD_OK);
    drop(&l[0]);
    drop(&l[1]);
    l[0] = expect(p, PD_PUSH);
    assert_int_equal(((Paramd__PushRequest *)l[0].message)->step, 1);               /* the same step again */
    drop(&l[0]);
    drop(&l[2]);
    free_peer(p);
}

static void a_ticket_refused_before_its_frame_has_left_waits_until_it_has(void **state)
{
    static const int64_t sizes[] = { CHUNK };
    peer *p = running(sizes, 1);
    float g[CHUNK] = { 0 };
    pd_item item = { .param = 0, .gradient = g };
    pd_prefix to = { .method = PD_PUSH };
    pd_ticket_id ticket;
    pd_error err;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pump(p, 100), 100);
    assert_int_equal(pd_prefix_read(&to, p->wire, UINT64_MAX / 2, &err), PD_OK);
    refuse(p, &to, PD_INVALID_ARGUMENT, "no");
    assert_false(pd_core_done(p->core, ticket));        /* the gradient is still being read from */
    pump(p, SIZE_MAX);
    assert_int_equal(finish(p, ticket, &err), PD_INVALID_ARGUMENT);
    free_peer(p);
}

static void ends_when_an_answer_has_not_the_length_of_what_was_asked(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    float w[4] = { 0 }, sent[200] = { 1, 1, 1, 1, 1 };
    pd_item item = { .param = 0, .weights = w };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    assert_int_equal(pd_core_pull(p->core, &item, 1, 0, &ticket, &err), PD_OK);
    l = expect(p, PD_PULL);
    assert_int_equal(reply_data(p, &l.prefix, 1, 0, 0, sent, 200), PD_INTERNAL);
    assert_int_equal(finish(p, ticket, &err), PD_INTERNAL);
    assert_true(w[0] == 0);
    drop(&l);
    free_peer(p);
}

static void ends_when_another_process_has_taken_its_rank(void **state)
{
    static const int64_t sizes[] = { 4 };
    peer *p = running(sizes, 1);
    pd_prefix connection = { .method = PD_HEARTBEAT, .request = 0 };
    pd_ticket_id ticket;
    pd_error err;
    (void)state;

    refuse(p, &connection, PD_ABORTED, "rank 2 was taken over by host:99");
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_ABORTED);
    assert_string_equal(err.text, "rank 2 was taken over by host:99");
    free_peer(p);
}

/* ---- reconnecting ---- */

static void sends_the_identical_bytes_again_on_the_next_connection(void **state)
{
    static const int64_t sizes[] = { 2 * CHUNK, 3 };
    peer *p = running(sizes, 2);
    float g[2 * CHUNK], w[2 * CHUNK], h[3] = { 7, 8, 9 }, v[3];
    pd_item items[] = { { .param = 0, .gradient = g, .weights = w }, { .param = 1, .gradient = h, .weights = v } };
    pd_ticket_id ticket, barrier;
    pd_error err;
    letter before[4], after;
    (void)state;

    for (int i = 0; i < 2 * CHUNK; i++) g[i] = (float)i;
    assert_int_equal(pd_core_push(p->core, PD_PUSH_PULL, items, 2, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_core_barrier(p->core, &barrier, &err), PD_OK);
    for (int i = 0; i < 4; i++) assert_true(take(p, &before[i]));
    reply_data(p, &before[1].prefix, 1, 1, 1, g, CHUNK);            /* one was answered: that one is not sent again */
    cut(p);
    connect_core(p);
    welcome(p);
    answer_declare(p, 2, 0);
    for (int i = 0; i < 4; i++) {
        if (i == 1) continue;
        assert_true(take(p, &after));
        assert_int_equal(after.bytes, before[i].bytes);
        assert_memory_equal(after.at, before[i].at, after.bytes);
        drop(&after);
    }
    expect_silence(p);
    assert_int_equal(pd_core_stats(p->core).resent, 3);
    assert_int_equal(pd_core_stats(p->core).connects, 2);
    for (int i = 0; i < 4; i++) drop(&before[i]);
    free_peer(p);
}

static void a_frame_cut_at_any_byte_is_sent_whole_on_the_next_connection(void **state)
{
    static const int64_t sizes[] = { 5 };
    (void)state;

    for (size_t at = 1; at < 90; at++) {
        peer *p = running(sizes, 1);
        float g[5] = { 1, 2, 3, 4, 5 };
        pd_item item = { .param = 0, .gradient = g };
        pd_ticket_id ticket;
        pd_error err;
        letter l;

        assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
        pump(p, at);
        cut(p);
        connect_core(p);
        welcome(p);
        answer_declare(p, 1, 0);
        l = expect(p, PD_PUSH);
        assert_memory_equal(l.payload, g, sizeof g);
        expect_silence(p);
        drop(&l);
        free_peer(p);
    }
}

static void tells_the_server_again_what_it_declares_before_anything_else(void **state)
{
    static const int64_t sizes[] = { 2 };
    peer *p = running(sizes, 1);
    pd_ticket_id barrier;
    pd_error err;
    letter l;
    (void)state;

    cut(p);
    assert_int_equal(pd_core_barrier(p->core, &barrier, &err), PD_OK);      /* asked for while there is no connection */
    connect_core(p);
    welcome(p);
    answer_declare(p, 1, 9);
    assert_int_equal(pd_core_step(p->core, 0), 9);
    l = expect(p, PD_BARRIER);
    assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, 1);
    reply_ok(p, &l.prefix);
    assert_int_equal(finish(p, barrier, &err), PD_OK);
    drop(&l);
    free_peer(p);
}

static void a_declaration_refused_can_be_mended_on_a_fresh_connection(void **state)
{
    static const int64_t sizes[] = { 2 };
    peer *p = new_peer(&four);
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    connect_core(p);
    welcome(p);
    ticket = declare(p, sizes, 1);
    l = expect(p, PD_DECLARE);
    refuse(p, &l.prefix, PD_RESOURCE_EXHAUSTED, "max_total_bytes");
    assert_int_equal(finish(p, ticket, &err), PD_RESOURCE_EXHAUSTED);
    drop(&l);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    cut(p);
    ticket = declare(p, sizes, 1);
    connect_core(p);
    welcome(p);
    answer_declare(p, 1, 0);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    free_peer(p);
}

static void a_request_that_a_draining_server_refuses_goes_to_the_next_one(void **state)
{
    static const int64_t sizes[] = { 2 };
    peer *p = running(sizes, 1);
    float g[2] = { 1, 2 };
    pd_item item = { .param = 0, .gradient = g };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, &err), PD_OK);
    l = expect(p, PD_PUSH);
    refuse(p, &l.prefix, PD_UNAVAILABLE, "draining: no new step");
    assert_false(pd_core_done(p->core, ticket));
    assert_string_equal(pd_core_reason(p->core), "draining: no new step");
    drop(&l);
    cut(p);
    connect_core(p);
    welcome(p);
    answer_declare(p, 1, 0);
    l = expect(p, PD_PUSH);
    reply_data(p, &l.prefix, 1, 1, 1, NULL, 0);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    drop(&l);
    free_peer(p);
}

static void initial_weights_that_arrived_although_their_answer_did_not_are_not_sent_again(void **state)
{
    static const int64_t sizes[] = { 2 };
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared has_not = PARAMD__DECLARED__INIT, *one[] = { &has_not };
    peer *p = new_peer(&four);
    float a[2] = { 1, 2 };
    void *weights[] = { a };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    connect_core(p);
    welcome(p);
    declare(p, sizes, 1);
    l = expect(p, PD_DECLARE);
    message.parameters = one;
    message.n_parameters = 1;
    message.must_init = true;
    reply(p, &l.prefix, &message.base, NULL, 0);
    drop(&l);
    assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
    l = expect(p, PD_INIT);
    drop(&l);
    cut(p);
    connect_core(p);
    welcome(p);
    answer_declare(p, 1, 0);                /* says that it is initialised */
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    expect_silence(p);
    free_peer(p);
}

/* ---- the rest ---- */

static void barriers_are_numbered_and_leaving_ends_the_handle(void **state)
{
    static const int64_t sizes[] = { 2 };
    peer *p = running(sizes, 1);
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_OK);
        l = expect(p, PD_BARRIER);
        assert_int_equal(((Paramd__BarrierRequest *)l.message)->sequence, i);
        reply_ok(p, &l.prefix);
        assert_int_equal(finish(p, ticket, &err), PD_OK);
        drop(&l);
    }
    assert_int_equal(pd_core_leave(p->core, &ticket, &err), PD_OK);
    l = expect(p, PD_LEAVE);
    reply_ok(p, &l.prefix);
    drop(&l);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    assert_int_equal(pd_core_barrier(p->core, &ticket, &err), PD_FAILED_PRECONDITION);
    assert_int_equal(pd_core_link(p->core, p->now), PD_LINK_DROP);
    free_peer(p);
}

static void sends_initial_weights_of_what_is_not_initialised(void **state)
{
    static const int64_t sizes[] = { 2, 3 };
    Paramd__DeclareReply message = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared has = PARAMD__DECLARED__INIT, has_not = PARAMD__DECLARED__INIT, *both[] = { &has, &has_not };
    peer *p = new_peer(&four);
    float a[2] = { 1, 2 }, b[3] = { 3, 4, 5 };
    void *weights[] = { a, b };
    pd_ticket_id ticket;
    pd_error err;
    letter l;
    (void)state;

    connect_core(p);
    welcome(p);
    declare(p, sizes, 2);
    l = expect(p, PD_DECLARE);
    has.initialised = true;
    message.parameters = both;
    message.n_parameters = 2;
    message.must_init = true;
    reply(p, &l.prefix, &message.base, NULL, 0);
    drop(&l);
    assert_true(pd_core_must_init(p->core));
    assert_int_equal(pd_core_init(p->core, weights, &ticket, &err), PD_OK);
    l = expect(p, PD_INIT);
    assert_int_equal(((Paramd__InitRequest *)l.message)->n_pieces, 1);
    assert_int_equal(((Paramd__InitRequest *)l.message)->pieces[0]->handle, 1);
    assert_memory_equal(l.payload, b, sizeof b);
    reply_ok(p, &l.prefix);
    assert_int_equal(finish(p, ticket, &err), PD_OK);
    drop(&l);
    free_peer(p);
}

static void an_operators_question_is_answered_without_declaring(void **state)
{
    pd_core_config config = four;
    Paramd__StatusReply status = PARAMD__STATUS_REPLY__INIT;
    peer *p;
    pd_ticket_id ticket;
    pd_error err;
    uint8_t *at;
    size_t bytes;
    letter l;
    (void)state;

    config.job = "";
    p = new_peer(&config);
    connect_core(p);
    welcome(p);
    assert_int_equal(pd_core_call(p->core, PD_STATUS, NULL, &ticket, &err), PD_OK);
    l = expect(p, PD_STATUS);
    status.uptime_ms = 1234;
    reply(p, &l.prefix, &status.base, NULL, 0);
    assert_int_equal(pd_core_finish(p->core, ticket, &at, &bytes, &err), PD_OK);
    assert_int_equal(bytes, protobuf_c_message_get_packed_size(&status.base));
    free(at);
    drop(&l);
    free_peer(p);
}

static void a_ticket_can_be_waited_for_once(void **state)
{
    static const int64_t sizes[] = { 2 };
    peer *p = running(sizes, 1);
    uint8_t *at;
    size_t bytes;
    pd_error err;
    (void)state;

    assert_int_equal(pd_core_finish(p->core, 424242, &at, &bytes, &err), PD_NOT_FOUND);
    free_peer(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_who_it_is_and_becomes_welcome),
        cmocka_unit_test(takes_the_welcome_split_at_every_byte),
        cmocka_unit_test(ends_with_the_servers_words_when_hello_is_refused),
        cmocka_unit_test(waits_for_a_server_that_is_going_away),
        cmocka_unit_test(refuses_an_option_without_a_value),
        cmocka_unit_test(backs_off_from_50_ms_to_2_s_and_tries_the_addresses_in_turn),
        cmocka_unit_test(comes_back_soon_to_the_same_address_after_a_connection_that_worked),
        cmocka_unit_test(sends_a_heartbeat_when_nothing_else_was_sent),
        cmocka_unit_test(drops_a_connection_that_owes_an_answer_and_is_silent),
        cmocka_unit_test(a_push_that_waits_long_for_its_round_is_kept_alive_by_heartbeats),
        cmocka_unit_test(a_push_carries_the_callers_bytes_at_multiples_of_64),
        cmocka_unit_test(weights_land_in_the_callers_buffers_split_at_every_byte),
        cmocka_unit_test(a_large_tensor_travels_a_chunk_a_frame_and_answers_come_in_any_order),
        cmocka_unit_test(small_tensors_fill_frames_up_to_each_limit_in_order),
        cmocka_unit_test(declares_many_parameters_in_several_frames),
        cmocka_unit_test(parameters_at_different_steps_travel_in_different_frames),
        cmocka_unit_test(an_absent_gradient_is_marked_and_its_weights_are_pulled),
        cmocka_unit_test(refuses_a_second_push_of_a_parameter_under_way),
        cmocka_unit_test(a_refused_frame_fails_its_items_and_no_others),
        cmocka_unit_test(a_ticket_refused_before_its_frame_has_left_waits_until_it_has),
        cmocka_unit_test(ends_when_an_answer_has_not_the_length_of_what_was_asked),
        cmocka_unit_test(ends_when_another_process_has_taken_its_rank),
        cmocka_unit_test(sends_the_identical_bytes_again_on_the_next_connection),
        cmocka_unit_test(a_frame_cut_at_any_byte_is_sent_whole_on_the_next_connection),
        cmocka_unit_test(tells_the_server_again_what_it_declares_before_anything_else),
        cmocka_unit_test(a_declaration_refused_can_be_mended_on_a_fresh_connection),
        cmocka_unit_test(a_request_that_a_draining_server_refuses_goes_to_the_next_one),
        cmocka_unit_test(initial_weights_that_arrived_although_their_answer_did_not_are_not_sent_again),
        cmocka_unit_test(barriers_are_numbered_and_leaving_ends_the_handle),
        cmocka_unit_test(sends_initial_weights_of_what_is_not_initialised),
        cmocka_unit_test(an_operators_question_is_answered_without_declaring),
        cmocka_unit_test(a_ticket_can_be_waited_for_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
