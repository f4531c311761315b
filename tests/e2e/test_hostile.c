/* Tests invalid frames, garbage and slow peers on raw sockets. Each gets a clear error and changes nothing, and the
 * daemon keeps serving the others. */
#include <sys/socket.h>
#include <sys/time.h>

#include "test.h"
#include "daemon_process.h"
#include "http_ask.h"
#include "message.h"
#include "team.h"

static const char *const flags[] = {
    "--chunk-bytes=4KiB",
    "--max-payload=64KiB",
    "--handshake-timeout=1s",
    "--heartbeat-timeout=20s",
    "--read-timeout=1s",
    "--write-timeout=1s",
    NULL,
};
enum { SIZE = 1500, CHUNK = 1024 };
static const int64_t sizes[] = { SIZE, 8 };
static const char *const rules[] = { "* sgd lr=1", NULL };

/* A job of two ranks. Rank 1 is a raw socket that misbehaves. Rank 0 is a well-behaved worker, which counts steps. */
typedef struct scene {
    test_daemon *daemon;
    model *model;
    team team;
    worker good; /* the well-behaved worker, rank 0 */
    int fd;
    uint64_t id;
    pd_arena *arena;
} scene;

static int connect_raw(int port)
{
    struct timeval limit = { .tv_sec = (time_t)patient(5) };
    int fd = loopback_connect(port);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

static void send_raw(int fd, const void *at, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        ssize_t part = send(fd, (const uint8_t *)at + sent, n - sent, MSG_NOSIGNAL);
        if (part <= 0) return; /* the daemon has closed the connection: the test reads the daemon's answer next */
        sent += (size_t)part;
    }
}

static bool read_raw(int fd, void *at, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t part = recv(fd, (uint8_t *)at + got, n - got, 0);
        if (part <= 0) return false;
        got += (size_t)part;
    }
    return true;
}

static void send_bytes(scene *s, unsigned method, const void *header, size_t header_bytes, const void *payload,
                       size_t n, uint64_t claimed)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(prefix, &(pd_prefix){ .version = 1,
                                          .method = (uint16_t)method,
                                          .header_bytes = (uint32_t)header_bytes,
                                          .payload_bytes = claimed,
                                          .request = ++s->id });
    send_raw(s->fd, prefix, sizeof prefix);
    send_raw(s->fd, header, header_bytes);
    send_raw(s->fd, payload, n);
}

static void send_message(scene *s, unsigned method, const ProtobufCMessage *message, const void *payload, size_t n)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *header = malloc(bytes + 1);

    protobuf_c_message_pack(message, header);
    send_bytes(s, method, header, bytes, payload, n, n);
    free(header);
}

/* Reads the next answer. Returns its code (PD_OK if it is no error) and its text in *err; -1000: the connection was
 * closed. */
static int next_answer(scene *s, pd_error *err)
{
    uint8_t raw[PD_PREFIX_BYTES], header[PD_MAX_HEADER_BYTES], byte;
    pd_prefix prefix;

    memset(err, 0, sizeof *err);
    if (!read_raw(s->fd, raw, sizeof raw)) return -1000;
    assert_int_equal(pd_prefix_read(&prefix, raw, UINT64_MAX / 2, err), PD_OK);
    assert_true(read_raw(s->fd, header, prefix.header_bytes));
    for (uint64_t i = 0; i < prefix.payload_bytes; i++) assert_true(read_raw(s->fd, &byte, 1));
    pd_arena_reset(s->arena);
    return (prefix.flags & PD_FLAG_ERROR) != 0 ? pd_message_error(s->arena, header, prefix.header_bytes, err, NULL)
                                               : PD_OK;
}

static void expect_answer(scene *s, int code, const char *words)
{
    pd_error err;
    int got = next_answer(s, &err);

    if (got != code) fail_msg("expected %s, got %s: %s", pd_code_name(code), pd_code_name(got), err.text);
    if (words != NULL && strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void say_hello(scene *s)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.protocol = 1;
    hello.job = (char *)s->team.job;
    hello.rank = 1;
    hello.world_size = 2;
    hello.nonce = 12345;
    hello.rules = (char **)rules;
    hello.n_rules = 1;
    hello.label = (char *)"raw";
    send_message(s, PD_HELLO, &hello.base, NULL, 0);
    expect_answer(s, PD_OK, NULL);
}

static void say_declare(scene *s)
{
    Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter params[2] = { PARAMD__PARAMETER__INIT, PARAMD__PARAMETER__INIT },
                      *list[] = { &params[0], &params[1] };
    uint64_t dims[] = { SIZE, 8 };

    for (int i = 0; i < 2; i++) {
        params[i].name = (char *)s->model->params[i].name;
        params[i].shape = &dims[i];
        params[i].n_shape = 1;
    }
    request.parameters = list;
    request.n_parameters = 2;
    request.last = true;
    send_message(s, PD_DECLARE, &request.base, NULL, 0);
    expect_answer(s, PD_OK, NULL);
}

/* Closes the raw connection, if any. Opens a new one, which joins as rank 1 and declares its parameters. */
static void reconnect(scene *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = connect_raw(s->daemon->port);
    s->id = 0;
    say_hello(s);
    say_declare(s);
}

static void push_pieces(scene *s, Paramd__Piece *pieces, size_t n, size_t payload_bytes)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece *list[64];
    uint8_t *payload = calloc(1, payload_bytes + 1);

    for (size_t i = 0; i < n; i++) list[i] = &pieces[i];
    push.step = 1;
    push.pieces = list;
    push.n_pieces = n;
    send_message(s, PD_PUSH, &push.base, payload, payload_bytes);
    free(payload);
}

static Paramd__Piece piece(uint32_t handle, uint64_t first, uint64_t count, uint64_t offset)
{
    Paramd__Piece p = PARAMD__PIECE__INIT;

    p.handle = handle;
    p.dtype = PD_F32;
    p.first = first;
    p.count = count;
    p.offset = offset;
    return p;
}

static void set_up(scene *s)
{
    static int serial;
    static char job[32];

    snprintf(job, sizeof job, "hostile-%d", serial++);
    s->daemon = daemon_start(flags);
    s->model = model_new(sizes, 2);
    s->team = (team){ .url = s->daemon->url, .job = job, .world = 2, .rules = rules, .model = s->model, .zero = true };
    s->arena = pd_arena_new(PD_ARENA_BUDGET);
    s->fd = -1;
    assert_true(worker_open(&s->good, &s->team, 0));
    assert_true(worker_declare(&s->good));
    reconnect(s);
}

/* Checks that the frames of the test have changed nothing: both ranks can take one step, and it is the first one. */
static void tear_down(scene *s)
{
    float ones[CHUNK + (SIZE - CHUNK) + 8 + 32];
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece pieces[3] = { piece(0, 0, CHUNK, 0), piece(0, CHUNK, SIZE - CHUNK, 4 * CHUNK), piece(1, 0, 8, 6016) },
                  *list[3] = { &pieces[0], &pieces[1], &pieces[2] };

    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) ones[i] = 1;
    assert_true(daemon_lives(s->daemon));
    reconnect(s);
    push.step = 1;
    push.pieces = list;
    push.n_pieces = 3;
    send_message(s, PD_PUSH, &push.base, ones, 6016 + 32);
    if (!worker_count(&s->good)) fail_msg("%s", s->good.failure);
    expect_answer(s, PD_OK, NULL);
    assert_true(worker_counted(&s->good, 1));
    close(s->fd);
    worker_free(&s->good);
    pd_arena_free(s->arena);
    model_free(s->model);
    assert_int_equal(daemon_stop(s->daemon, patient(10)), 0);
}

static void expect_end(scene *s, const char *words)
{
    pd_error err;
    int code = next_answer(s, &err);

    if (code == PD_OK) fail_msg("expected an error, got an answer");
    if (code != -1000 && words != NULL && strstr(err.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    ssize_t n = recv(s->fd, err.text, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET)); /* the end of the stream, not the test's own timeout */
}

static void talk(scene *s, const void *at, size_t n)
{
    close(s->fd);
    s->fd = connect_raw(s->daemon->port);
    send_raw(s->fd, at, n);
}

FIXTURE(scene, set_up, tear_down);

TEST(another_protocol_is_told_so, scene *s)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost:7070\r\nAccept: */*\r\n\r\n";

    talk(s, http, sizeof http - 1);
    expect_end(s, "another protocol");
}

TEST(random_bytes_end_their_connection_alone, scene *s)
{
    uint8_t noise[4096];
    uint64_t x = 88172645463325252u;
    pd_error err;

    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof noise; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            noise[i] = (uint8_t)x;
        }
        if (round % 2 == 0) memcpy(noise, "PDF1\1\0\0\0", 8); /* half of the noise begins with a valid prefix */
        talk(s, noise, sizeof noise);
        while (next_answer(s, &err) != -1000) continue;
    }
}

TEST(a_frame_cut_short_changes_nothing, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES] = { 0 };

    pd_prefix_write(prefix, &(pd_prefix){ .version = 1, .method = PD_HELLO, .header_bytes = 100, .request = 1 });
    for (size_t n = 0; n <= sizeof prefix; n += 8) talk(s, prefix, n);
}

TEST(anything_before_hello_is_refused, scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    talk(s, NULL, 0);
    send_message(s, PD_STATUS, &empty.base, NULL, 0);
    expect_end(s, "Hello");
}

TEST(a_second_hello_ends_the_connection, scene *s)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.protocol = 1;
    hello.job = (char *)"other";
    hello.world_size = 1;
    send_message(s, PD_HELLO, &hello.base, NULL, 0);
    expect_end(s, "second Hello");
}

TEST(a_hello_that_the_loop_refuses_ends_the_connection, scene *s)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.job = (char *)"no-protocol";
    talk(s, NULL, 0);
    send_message(s, PD_HELLO, &hello.base, NULL, 0);
    expect_end(s, "protocol 0");
}

TEST(a_frame_of_another_version_ends_the_stream, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(prefix, &(pd_prefix){ .version = 2, .method = PD_HEARTBEAT, .request = 9 });
    send_raw(s->fd, prefix, sizeof prefix);
    expect_end(s, "this side speaks version 1");
}

TEST(a_method_that_does_not_exist_is_refused_and_the_connection_goes_on, scene *s)
{
    send_bytes(s, 999, NULL, 0, NULL, 0, 0);
    expect_answer(s, PD_UNIMPLEMENTED, "999");
    send_bytes(s, PD_HEARTBEAT, NULL, 0, NULL, 0, 0);
    expect_answer(s, PD_OK, NULL);
}

TEST(a_worker_may_not_do_an_operators_work, scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    send_message(s, PD_SHUTDOWN, &empty.base, NULL, 0);
    expect_answer(s, PD_PERMISSION_DENIED, NULL);
}

TEST(a_header_longer_than_allowed_ends_the_stream, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(prefix, &(pd_prefix){ .version = 1, .method = PD_PUSH, .header_bytes = UINT32_MAX, .request = 9 });
    send_raw(s->fd, prefix, sizeof prefix);
    expect_end(s, "header");
}

TEST(a_payload_longer_than_allowed_ends_the_stream_before_memory_is_asked_for, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(
        prefix,
        &(pd_prefix){
            .version = 1, .method = PD_PUSH, .header_bytes = 0, .payload_bytes = UINT64_MAX / 4, .request = 9 });
    send_raw(s->fd, prefix, sizeof prefix);
    expect_end(s, "payload");
}

TEST(a_header_that_is_no_message_is_refused, scene *s)
{
    uint8_t header[64];

    memset(header, 0xff, sizeof header);
    send_bytes(s, PD_PUSH, header, sizeof header, NULL, 0, 0);
    expect_answer(s, PD_INVALID_ARGUMENT, NULL);
}

/* Sends a push header full of empty sub-messages. Each takes two bytes on the wire, but dozens of bytes in memory. */
TEST(a_header_bomb_is_refused, scene *s)
{
    uint8_t *header = malloc(PD_MAX_HEADER_BYTES);

    for (size_t i = 0; i < PD_MAX_HEADER_BYTES; i += 2) {
        header[i] = 6 << 3 | 2; /* field PushRequest.pieces, with length 0 */
        header[i + 1] = 0;
    }
    send_bytes(s, PD_PUSH, header, PD_MAX_HEADER_BYTES, NULL, 0, 0);
    expect_answer(s, PD_RESOURCE_EXHAUSTED, NULL);
    free(header);
}

TEST(a_payload_where_none_belongs_is_refused, scene *s)
{
    static const uint8_t bytes[100];

    send_bytes(s, PD_HEARTBEAT, NULL, 0, bytes, sizeof bytes, sizeof bytes);
    expect_answer(s, PD_INVALID_ARGUMENT, "payload");
    send_bytes(s, PD_HEARTBEAT, NULL, 0, NULL, 0, 0);
    expect_answer(s, PD_OK, NULL); /* the daemon has read all bytes of the refused frame */
}

static void expect_piece_refused(scene *s, Paramd__Piece *pieces, size_t n, size_t payload_bytes, const char *words)
{
    push_pieces(s, pieces, n, payload_bytes);
    expect_answer(s, PD_INVALID_ARGUMENT, words);
}

HOLDS_FOR(scene *s, a_piece_of_an_unknown_handle_is_refused,
          expect_piece_refused(s, (Paramd__Piece[]){ piece(2, 0, 8, 0) }, 1, 32, "handle 2"));

TEST(a_piece_that_is_not_one_chunk_is_refused, scene *s)
{
    expect_piece_refused(s, (Paramd__Piece[]){ piece(0, 0, CHUNK - 1, 0) }, 1, 4 * CHUNK, "p0");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(0, 0, SIZE, 0) }, 1, 4 * SIZE, "p0");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(0, 1, CHUNK, 0) }, 1, 4 * CHUNK, "p0");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(0, 2 * CHUNK, 8, 0) }, 1, 32, "p0");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 9, 0) }, 1, 36, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, UINT64_MAX, 0) }, 1, 32, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, UINT64_MAX, 8, 0) }, 1, 32, "p1");
}

TEST(pieces_that_overlap_leave_the_payload_or_are_not_aligned_are_refused, scene *s)
{
    expect_piece_refused(s, (Paramd__Piece[]){ piece(0, 0, CHUNK, 0), piece(1, 0, 8, 0) }, 2, 4 * CHUNK, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, 64) }, 1, 96, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, 4) }, 1, 36, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, 0) }, 1, 31, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, UINT64_MAX - 63) }, 1, 32, "p1");
    expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, 0) }, 1, 4096, "4096");
}

HOLDS_FOR(scene *s, the_same_chunk_twice_is_refused,
          expect_piece_refused(s, (Paramd__Piece[]){ piece(1, 0, 8, 0), piece(1, 0, 8, 64) }, 2, 96, "p1"));

TEST(the_same_want_twice_is_refused, scene *s)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want, &want };

    want.handle = 1;
    want.count = 8;
    pull.wants = wants;
    pull.n_wants = 2;
    send_message(s, PD_PULL, &pull.base, NULL, 0);
    expect_answer(s, PD_INVALID_ARGUMENT, "wants 0 and 1 (p1): duplicate chunk");
}

TEST(an_unknown_element_type_is_refused, scene *s)
{
    Paramd__Piece one = piece(1, 0, 8, 0);

    one.dtype = 7;
    expect_piece_refused(s, &one, 1, 32, "dtype");
}

TEST(an_absent_piece_with_data_is_refused, scene *s)
{
    Paramd__Piece one = piece(1, 0, 8, 0);

    one.absent = true;
    expect_piece_refused(s, &one, 1, 32, "absent");
}

TEST(a_step_that_is_not_the_next_is_refused, scene *s)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece one = piece(1, 0, 8, 0), *list[] = { &one };
    float payload[8] = { 0 };

    push.pieces = list;
    push.n_pieces = 1;
    push.step = 3;
    send_message(s, PD_PUSH, &push.base, payload, sizeof payload);
    expect_answer(s, PD_FAILED_PRECONDITION, "step 3");
    push.step = 0;
    send_message(s, PD_PUSH, &push.base, payload, sizeof payload);
    expect_answer(s, PD_INVALID_ARGUMENT, "step 0");
}

TEST(a_wrong_checksum_ends_the_stream, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(
        prefix,
        &(pd_prefix){ .version = 1, .method = PD_HEARTBEAT, .flags = PD_FLAG_CHECKSUM, .request = 9, .checksum = 1 });
    send_raw(s->fd, prefix, sizeof prefix);
    expect_end(s, "checksum");
}

/* Takes a step of another job, and returns how many seconds it took. */
static double serve_bystander(scene *s)
{
    team t = { .url = s->daemon->url, .job = "bystander", .world = 1, .rules = rules, .model = s->model, .zero = true };
    double begun = seconds_now();
    worker w;

    if (!worker_open(&w, &t, 0) || !worker_declare(&w) || !worker_count(&w) || !worker_leave(&w))
        fail_msg("%s", w.failure);
    worker_free(&w);
    return seconds_now() - begun;
}

/* Takes steps of another job while raw peers are slow, which are cut after a second. `play` plays one peer, and returns
 * how long the step took. A busy machine makes some steps slow, and none fast. */
static void expect_service(scene *s, double (*play)(scene *s))
{
    double fastest = play(s);

    for (int i = 0; i < 4 && fastest >= patient(0.5); i++) fastest = fmin(fastest, play(s));
    assert_true(fastest < patient(0.5));
}

static double say_nothing(scene *s)
{
    double took;

    talk(s, NULL, 0);
    took = serve_bystander(s);
    expect_end(s, "no Hello");
    return took;
}

HOLDS_FOR(scene *s, who_says_nothing_is_cut_and_holds_up_nobody, expect_service(s, say_nothing));

static double send_a_trickle(scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES], byte = 0;
    double begun, took;

    reconnect(s);
    begun = seconds_now();

    pd_prefix_write(prefix, &(pd_prefix){ .version = 1, .method = PD_PUSH, .header_bytes = 1000, .request = 9 });
    send_raw(s->fd, prefix, sizeof prefix);
    took = serve_bystander(s);
    for (; recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1 && seconds_now() - begun < patient(10); sleep_for(0.05))
        send_raw(s->fd, &byte, 1);
    assert_in_range((int)(1000 * (seconds_now() - begun)), 900, (int)(1000 * patient(10)));
    expect_end(s, "incomplete frame: not received");
    return took;
}

HOLDS_FOR(scene *s, a_frame_that_trickles_is_cut_and_holds_up_nobody, expect_service(s, send_a_trickle));

/* Requests for weights whose answers nobody reads. */
typedef struct requests {
    scene *scene;
    uint8_t frame[200];
    size_t header, sent; /* bytes of the header; bytes of the frame that are sent already */
    int cuts;            /* connections that the daemon has cut before */
} requests;

#define CUT "did not read"

/* Sends requests as long as the socket takes them, and returns whether the daemon has cut the connection. */
static bool are_cut(void *arg)
{
    requests *r = arg;
    size_t bytes = PD_PREFIX_BYTES + r->header;
    ssize_t n;

    do {
        if (r->sent == 0)
            pd_prefix_write(r->frame, &(pd_prefix){ .version = 1,
                                                    .method = PD_PULL,
                                                    .header_bytes = (uint32_t)r->header,
                                                    .request = ++r->scene->id });
        n = send(r->scene->fd, r->frame + r->sent, bytes - r->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) r->sent = (r->sent + (size_t)n) % bytes;
    } while (n > 0);
    return daemon_count(r->scene->daemon, CUT) > r->cuts;
}

static double read_nothing(scene *s)
{
    requests r = { .scene = s, .cuts = daemon_count(s->daemon, CUT) };
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };
    double took;

    reconnect(s);
    want.count = CHUNK;
    pull.wants = wants;
    pull.n_wants = 1;
    r.header = protobuf_c_message_pack(&pull.base, r.frame + PD_PREFIX_BYTES);
    (void)are_cut(&r);
    took = serve_bystander(s);
    assert_true(await(are_cut, &r, patient(20)));
    return fmax(took, serve_bystander(s));
}

HOLDS_FOR(scene *s, who_does_not_read_is_cut_and_holds_up_nobody, expect_service(s, read_nothing));
