/* Tests client handles over real sockets against a small server in this file, which is killed again and again and comes
 * back at an earlier step: with a window the program does not notice, without one it rewinds. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "message.h"
#include "paramd/client.h"

WITH_THREADS();

enum { CHUNK = 8192, CHUNKS = 5, ELEMENTS = CHUNK * CHUNKS };

/* One life of the server: the step that its checkpoint has, and how many frames with gradients it answers. */
typedef struct life {
    uint64_t step;
    int frames; /* 0: it lives until the client closes the connection */
} life;

typedef struct server {
    pthread_t thread;
    int listener, port, n_lives;
    const life *lives;
    uint64_t step;              /* steps that the server has taken */
    int chunks;                 /* chunks of the next step that have come */
    bool differs;               /* its weights are other ones from the second life on */
    uint64_t durable;           /* the durable step in its answers */
    int refused;                /* pushes that came too early: the server refuses them */
    uint8_t note[64];           /* the last note */
    uint64_t note_step, bytes;  /* its step and length */
    uint8_t payload[CHUNK * 4]; /* of the frame that was read last */
    float sum[CHUNKS];          /* for each chunk: sum over steps of its first element */
} server;

static bool read_all(int fd, void *at, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t part = recv(fd, (uint8_t *)at + got, n - got, 0);
        if (part <= 0) return false;
        got += (size_t)part;
    }
    return true;
}

static void send_all(int fd, const void *at, size_t n)
{
    for (size_t gone = 0; gone < n;) {
        ssize_t part = send(fd, (const uint8_t *)at + gone, n - gone, MSG_NOSIGNAL);
        if (part <= 0) return;
        gone += (size_t)part;
    }
}

static void answer(int fd, const pd_prefix *to, const ProtobufCMessage *message, void *payload, size_t n)
{
    struct iovec span = { payload, n };
    uint8_t *frame;
    size_t bytes;

    if (pd_frame_pack(&frame, &bytes, to->method, PD_FLAG_REPLY, to->request, message, &span, n > 0, n) != PD_OK)
        abort();
    send_all(fd, frame, bytes);
    send_all(fd, payload, n);
    free(frame);
}

static void answer_ok(int fd, const pd_prefix *to)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    answer(fd, to, &ok.base, NULL, 0);
}

static void greet(int fd, const pd_prefix *to)
{
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.chunk_elements = CHUNK;
    hello.max_payload = 1 << 20;
    hello.max_pieces = 64;
    hello.heartbeat_ms = 50;
    hello.timeout_ms = 20000;
    hello.server = (char *)"few lines";
    hello.blas_core = (char *)"none";
    hello.creator = 7;
    answer(fd, to, &hello.base, NULL, 0);
}

static void declare(const server *s, int fd, const pd_prefix *to)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    Paramd__Declared one = PARAMD__DECLARED__INIT, *all[] = { &one };

    one.step = s->step;
    one.initialised = true;
    reply.parameters = all;
    reply.n_parameters = 1;
    reply.durable_step = s->durable;
    answer(fd, to, &reply.base, NULL, 0);
}

/* Answers with weights that follow from step and chunk. */
static void answer_data(server *s, int fd, const pd_prefix *to, uint64_t first, uint64_t step, bool second_life)
{
    Paramd__DataReply reply = PARAMD__DATA_REPLY__INIT;
    Paramd__Outcome one = PARAMD__OUTCOME__INIT, *all[] = { &one };
    float *weights = (float *)(void *)s->payload;

    for (int i = 0; i < CHUNK; i++) weights[i] = (float)(step * 1000 + first / CHUNK) + (float)i / CHUNK;
    if (s->differs && second_life) weights[CHUNK - 1] += 1;
    one.outcome = to->method == PD_PULL ? 0 : 1;
    one.step = one.version = step;
    reply.outcomes = all;
    reply.n_outcomes = 1;
    reply.durable_step = s->durable;
    answer(fd, to, &reply.base, weights, to->method == PD_PUSH ? 0 : sizeof s->payload);
}

static void refuse(server *s, int fd, const pd_prefix *to)
{
    uint8_t *frame;
    size_t bytes;

    s->refused++;
    if (pd_frame_pack_error(&frame, &bytes, to->method, 0, to->request, PD_FAILED_PRECONDITION,
                            "the rounds before are not closed", 0) != PD_OK)
        abort();
    send_all(fd, frame, bytes);
    free(frame);
}

static void take_push(server *s, int fd, const pd_prefix *to, const Paramd__PushRequest *push, bool second_life)
{
    uint64_t first = push->pieces[0]->first;
    float value;

    if (push->step > s->step + 1) {
        refuse(s, fd, to);
        return;
    }
    memcpy(&value, s->payload, sizeof value);
    if (push->step == s->step + 1) {
        s->sum[first / CHUNK] += value;
        if (++s->chunks == CHUNKS) {
            s->chunks = 0;
            s->step++;
        }
    }
    answer_data(s, fd, to, first, push->step, second_life);
}

static void take_pull(server *s, int fd, const pd_prefix *to, const Paramd__PullRequest *pull)
{
    answer_data(s, fd, to, pull->wants[0]->first, s->step, false);
}

static void take_note(server *s, int fd, const pd_prefix *to, const Paramd__NoteRequest *note)
{
    s->note_step = note->step;
    s->bytes = to->payload_bytes;
    memcpy(s->note, s->payload, to->payload_bytes < sizeof s->note ? to->payload_bytes : sizeof s->note);
    answer_ok(fd, to);
}

static void recall(server *s, int fd, const pd_prefix *to)
{
    Paramd__RecallReply reply = PARAMD__RECALL_REPLY__INIT;

    reply.step = s->note_step;
    reply.bytes = s->bytes;
    answer(fd, to, &reply.base, s->note, s->bytes);
}

/* Answers a request for a checkpoint, unless it is of a step that the server has not taken. */
static void checkpoint(server *s, int fd, const pd_prefix *to, const Paramd__CheckpointRequest *request)
{
    Paramd__CheckpointReply reply = PARAMD__CHECKPOINT_REPLY__INIT;

    if (request->step > s->step) return;
    s->durable = reply.step = s->step;
    answer(fd, to, &reply.base, NULL, 0);
}

/* Reads a frame. Its payload is in s->payload. */
static bool next(server *s, int fd, pd_arena *arena, pd_prefix *prefix, void **message)
{
    uint8_t head[PD_PREFIX_BYTES], header[PD_MAX_HEADER_BYTES];

    return read_all(fd, head, sizeof head) && pd_prefix_read(prefix, head, sizeof s->payload, NULL) == PD_OK &&
           read_all(fd, header, prefix->header_bytes) && read_all(fd, s->payload, prefix->payload_bytes) &&
           pd_request_unpack(arena, prefix->method, header, prefix->header_bytes, message, NULL) == PD_OK;
}

static void serve_life(server *s, int fd, const life *l, bool second_life)
{
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    int frames = 0;
    pd_prefix prefix;
    void *message;

    s->step = l->step;
    s->chunks = 0;
    while ((l->frames == 0 || frames < l->frames) && next(s, fd, arena, &prefix, &message)) {
        frames += pd_method_pushes(prefix.method);
        switch (prefix.method) {
        case PD_HELLO: greet(fd, &prefix); break;
        case PD_DECLARE: declare(s, fd, &prefix); break;
        case PD_PUSH:
        case PD_PUSH_PULL: take_push(s, fd, &prefix, message, second_life); break;
        case PD_PULL: take_pull(s, fd, &prefix, message); break;
        case PD_NOTE: take_note(s, fd, &prefix, message); break;
        case PD_RECALL: recall(s, fd, &prefix); break;
        case PD_CHECKPOINT: checkpoint(s, fd, &prefix, message); break;
        default: answer_ok(fd, &prefix);
        }
        pd_arena_reset(arena);
    }
    pd_arena_free(arena);
}

static void *serve(void *arg)
{
    server *s = arg;

    for (int i = 0; i < s->n_lives; i++) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) break;
        serve_life(s, fd, &s->lives[i], i > 0);
        close(fd);
    }
    close(s->listener);
    return NULL;
}

static void start(server *s, const life *lives, int n)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;

    s->lives = lives;
    s->n_lives = n;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    getsockname(s->listener, (struct sockaddr *)&address, &size);
    s->port = ntohs(address.sin_port);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* A worker with one parameter of CHUNKS chunks. */
typedef struct worker {
    pd_client *client;
    pd_item item;
    float *gradient, *weights;
} worker;

/* Begins a worker whose calls return after `slice` seconds; 0: after their deadline. */
static worker begin_in_slices(const server *s, uint32_t window, double slice)
{
    static const pd_client_param param = { .name = "w", .shape = { 1, { ELEMENTS } } };
    worker w = { .gradient = calloc(ELEMENTS, 4), .weights = calloc(ELEMENTS, 4) };
    pd_error err;
    char url[64];
    int rc;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", s->port);
    rc = pd_client_open(&w.client,
                        &(pd_client_options){ .urls = url,
                                              .job = "j",
                                              .world_size = 1,
                                              .deadline = patient(20),
                                              .slice = slice,
                                              .window = window,
                                              .quiet = true },
                        &err);
    if (rc == PD_OK)
        while ((rc = pd_client_declare(w.client, &param, 1, &err)) == PD_DEADLINE_EXCEEDED) continue;
    if (rc != PD_OK) fail_msg("%s", err.text);
    w.item = (pd_item){ .param = 0, .gradient = w.gradient, .weights = w.weights };
    return w;
}

static worker begin(const server *s, uint32_t window)
{
    return begin_in_slices(s, window, 0);
}

static void end(worker *w, server *s)
{
    pd_client_close(w->client);
    free(w->gradient);
    free(w->weights);
    pthread_join(s->thread, NULL);
}

static int begin_step(worker *w, pd_ticket_id *ticket, pd_error *err)
{
    uint64_t step = pd_client_step(w->client, 0) + 1;
    pd_push_options options = { .note = &step, .note_bytes = sizeof step };

    for (int i = 0; i < ELEMENTS; i++) w->gradient[i] = (float)(step + (uint64_t)(i / CHUNK));
    return pd_client_push_pull(w->client, &w->item, 1, &options, ticket, err);
}

static int take_step(worker *w, pd_error *err)
{
    pd_ticket_id ticket;
    int rc = begin_step(w, &ticket, err);

    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, err) : rc;
}

/* Takes a step with a client whose calls may return before the step is taken. */
static void take_step_in_slices(worker *w)
{
    pd_ticket_id ticket;
    pd_error err;
    int rc;

    assert_int_equal(begin_step(w, &ticket, &err), PD_OK);
    while ((rc = pd_client_wait(w->client, ticket, 0, &err)) == PD_DEADLINE_EXCEEDED) continue;
    assert_int_equal(rc, PD_OK);
}

static void expect_weights(const worker *w, uint64_t step)
{
    for (uint64_t i = 0; i < ELEMENTS; i++)
        assert_true(w->weights[i] == (float)(step * 1000 + i / CHUNK) + (float)(i % CHUNK) / CHUNK);
}

/* Returns the sum of the first elements of chunk `chunk` over the steps after `first`, up to `last`. */
static float sum_of(uint64_t first, uint64_t last, int chunk)
{
    float sum = 0;

    for (uint64_t step = first + 1; step <= last; step++) sum += (float)(step + (uint64_t)chunk);
    return sum;
}

TEST(the_program_does_not_notice_a_server_that_goes_back)
{
    static const life lives[] = { { 0, 23 }, { 2, 13 }, { 3, 4 }, { 1, 31 }, { 5, 0 } };
    server s = { 0 };
    pd_client_stats stats;
    pd_error err;
    worker w;

    start(&s, lives, 5);
    w = begin(&s, 8);
    for (uint64_t step = 1; step <= 12; step++) {
        if (take_step(&w, &err) != PD_OK) fail_msg("step %d: %s", (int)step, err.text);
        assert_int_equal(pd_client_step(w.client, 0), step);
        expect_weights(&w, step);
    }
    stats = pd_client_count(w.client);
    assert_int_equal(stats.rewinds, 4);
    assert_true(stats.replayed >= 4 * CHUNKS);
    end(&w, &s);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.step, 12);
    assert_int_equal(s.note_step, 12);
}

/* The server forgets all that came in a life, except for what its checkpoint has. */
TEST(every_gradient_reaches_the_server_that_has_gone_back)
{
    static const life lives[] = { { 0, 22 }, { 2, 0 } };
    server s = { 0 };
    pd_error err;
    worker w;

    start(&s, lives, 2);
    w = begin(&s, 8);
    for (uint64_t step = 1; step <= 6; step++) assert_int_equal(take_step(&w, &err), PD_OK);
    end(&w, &s);
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        /* in its first life the server got four whole steps and two chunks of the fifth */
        assert_true(s.sum[chunk] == sum_of(0, 4, chunk) + (chunk < 2 ? (float)(5 + chunk) : 0) + sum_of(2, 6, chunk));
}

TEST(a_server_that_computes_other_weights_is_found_out)
{
    static const life lives[] = { { 0, 22 }, { 2, 0 } };
    server s = { .differs = true };
    int rc = PD_OK;
    pd_error err;
    worker w;

    start(&s, lives, 2);
    w = begin(&s, 8);
    for (int step = 1; rc == PD_OK && step <= 6; step++) rc = take_step(&w, &err);
    assert_int_equal(rc, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "parameter w: step 3"));
    end(&w, &s);
}

TEST(a_program_without_a_window_rewinds)
{
    /* the second connection finds that the server has gone back, and the third one is that of the rewind */
    static const life lives[] = { { 0, 22 }, { 2, 0 }, { 2, 0 } };
    server s = { 0 };
    void *weights[1];
    size_t bytes;
    uint64_t step, noted = 0;
    pd_error err;
    worker w;

    start(&s, lives, 3);
    w = begin(&s, 0);
    weights[0] = w.weights;
    while (take_step(&w, &err) == PD_OK) assert_true(pd_client_step(w.client, 0) <= 4);
    assert_int_equal(err.code, PD_REWIND);
    assert_int_equal(pd_client_barrier(w.client, &err), PD_REWIND);
    assert_int_equal(pd_client_rewind(w.client, weights, &err), PD_OK);
    assert_int_equal(pd_client_step(w.client, 0), 2);
    expect_weights(&w, 2);
    assert_int_equal(pd_client_worker_state(w.client, &noted, sizeof noted, &bytes, &step, &err), PD_OK);
    assert_int_equal(bytes, sizeof noted);
    assert_int_equal(noted, step);
    assert_int_equal(take_step(&w, &err), PD_OK);
    expect_weights(&w, 3);
    assert_int_equal(pd_client_rewind(w.client, weights, &err), PD_FAILED_PRECONDITION);
    end(&w, &s);
}

TEST(a_server_may_go_back_while_a_program_rewinds)
{
    static const life lives[] = { { 0, 22 }, { 3, 0 }, { 3, 2 }, { 1, 0 }, { 1, 0 } };
    server s = { 0 };
    void *weights[1];
    pd_error err;
    worker w;
    int rc;

    start(&s, lives, 5);
    w = begin(&s, 0);
    weights[0] = w.weights;
    for (int rewinds = 0; rewinds < 2;) {
        if ((rc = take_step(&w, &err)) == PD_OK) continue;
        assert_int_equal(rc, PD_REWIND);
        assert_int_equal(pd_client_rewind(w.client, weights, &err), PD_OK);
        rewinds++;
    }
    assert_int_equal(pd_client_step(w.client, 0), 1);
    expect_weights(&w, 1);
    end(&w, &s);
}

TEST(a_note_is_read_back_as_far_as_there_is_room)
{
    static const life lives[] = { { 0, 0 } };
    server s = { 0 };
    uint8_t some[4] = { 9, 9, 9, 9 };
    size_t bytes;
    uint64_t step;
    pd_error err;
    worker w;

    start(&s, lives, 1);
    w = begin(&s, 0);
    assert_int_equal(pd_client_recall(w.client, NULL, 0, &bytes, &step, &err), PD_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(step, 0);
    assert_int_equal(take_step(&w, &err), PD_OK);
    assert_int_equal(pd_client_recall(w.client, some, 2, &bytes, &step, &err), PD_OK);
    assert_int_equal(bytes, sizeof(uint64_t));
    assert_int_equal(step, 1);
    assert_int_equal(some[0], 1);
    assert_int_equal(some[2], 9);
    end(&w, &s);
}

TEST(after_a_sync_the_step_is_durable)
{
    static const life lives[] = { { 0, 0 } };
    server s = { 0 };
    pd_error err;
    worker w;

    start(&s, lives, 1);
    w = begin(&s, 4);
    assert_int_equal(take_step(&w, &err), PD_OK);
    assert_int_equal(pd_client_durable(w.client), 0);
    assert_int_equal(pd_client_sync(w.client, 0, &err), PD_OK);
    assert_int_equal(pd_client_durable(w.client), 1);
    end(&w, &s);
}

static bool step_1_is_durable(void *arg)
{
    const worker *w = arg;

    return pd_client_sync(w->client, 1, NULL) == PD_OK;
}

TEST(a_sync_of_another_step_does_not_wait_for_the_first_one)
{
    static const life lives[] = { { 0, 0 } };
    server s = { 0 };
    pd_error err;
    worker w;

    start(&s, lives, 1);
    w = begin_in_slices(&s, 4, 0.2);
    take_step_in_slices(&w);
    assert_int_equal(pd_client_sync(w.client, 9, &err), PD_DEADLINE_EXCEEDED);
    assert_true(await(step_1_is_durable, &w, patient(5)));
    end(&w, &s);
}
