/* Tests a job whose steps take three of four workers, with a real daemon: steps go on without a worker that has
 * stopped, and it is told so when it comes back. Also a worker that knows nothing of such jobs. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"
#include "daemon_process.h"
#include "message.h"
#include "paramd/client.h"

enum { WORLD = 4, PARAMS = 2, N = 5, STEPS = 100, SLOW = 3, LATE = 5 };

static const pd_client_param params[PARAMS] = { { .name = "a", .shape = { .rank = 1, .dim = { N } } },
                                                { .name = "b", .shape = { .rank = 1, .dim = { N } } } };

/* A worker of the job. Its gradient of each element is 1. */
typedef struct worker {
    pd_client *client;
    pd_item items[PARAMS];
    pd_item_count counts[PARAMS];
    float gradients[PARAMS][N], weights[PARAMS][N];
} worker;

/* A job with a daemon of its own. */
typedef struct scene {
    test_daemon *daemon;
    worker workers[WORLD];
} scene;

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static void open_worker(const scene *s, worker *w, int rank)
{
    static const char *const rules[] = { "* sgd lr=1", NULL }, *const options[] = { "rounds=quorum", "quorum=3", NULL };
    pd_client_options how = { .urls = s->daemon->url,
                              .job = "q",
                              .rank = rank,
                              .world_size = WORLD,
                              .options = options,
                              .rules = rules,
                              .deadline = patient(20) };
    pd_error err;

    for (int i = 0; i < PARAMS; i++) {
        for (int k = 0; k < N; k++) w->gradients[i][k] = 1;
        w->items[i] = (pd_item){ .param = (size_t)i, .gradient = w->gradients[i], .weights = w->weights[i] };
    }
    must(pd_client_open(&w->client, &how, &err), &err);
    must(pd_client_declare(w->client, params, PARAMS, &err), &err);
}

static void init(worker *w)
{
    void *const weights[PARAMS] = { w->weights[0], w->weights[1] };
    pd_error err;

    must(pd_client_init(w->client, weights, &err), &err);
}

/* Makes a job of `n` workers with a client handle; the last ones are missing. */
static void begin(scene *s, int n)
{
    memset(s, 0, sizeof *s);
    s->daemon = daemon_start(NULL);
    for (int r = 0; r < n; r++) open_worker(s, &s->workers[r], r);
    for (int r = 0; r < n; r++) init(&s->workers[r]);
}

static void end(scene *s)
{
    for (int r = 0; r < WORLD; r++) pd_client_close(s->workers[r].client);
    daemon_end(s->daemon);
}

static pd_ticket_id push(worker *w)
{
    const pd_push_options options = { .counts = w->counts };
    pd_ticket_id ticket;
    pd_error err;

    must(pd_client_push_pull(w->client, w->items, PARAMS, &options, &ticket, &err), &err);
    return ticket;
}

static void finish(worker *w, pd_ticket_id ticket)
{
    pd_error err;

    must(pd_client_wait(w->client, ticket, patient(20), &err), &err);
}

/* Takes a step with all workers but the slow one, which must be a quorum. */
static void step_without_the_slow_one(scene *s)
{
    pd_ticket_id tickets[SLOW];

    for (int r = 0; r < SLOW; r++) tickets[r] = push(&s->workers[r]);
    for (int r = 0; r < SLOW; r++) finish(&s->workers[r], tickets[r]);
    for (int r = 0; r < SLOW; r++) assert_int_equal(s->workers[r].items[0].outcome, 1);
}

TEST(steps_go_on_without_a_worker_which_is_told_late_and_then_counts_again)
{
    scene s;
    worker *slow = &s.workers[SLOW];
    pd_ticket_id ticket, others[SLOW];

    begin(&s, WORLD);
    for (int step = 0; step < STEPS; step++) step_without_the_slow_one(&s);
    assert_int_equal(s.workers[0].counts[1].counted, 3);

    finish(slow, push(slow));
    for (int i = 0; i < PARAMS; i++) {
        assert_int_equal(slow->items[i].outcome, LATE);
        assert_int_equal(slow->items[i].step, STEPS);
        assert_memory_equal(slow->weights[i], s.workers[0].weights[i], sizeof slow->weights[i]);
        assert_float_equal(slow->weights[i][0], -STEPS, 0);
    }
    assert_int_equal(pd_client_step(slow->client, 0), STEPS);

    ticket = push(slow);
    daemon_await_contributions(s.daemon, "q", (STEPS * SLOW + 1) * PARAMS);
    for (int r = 0; r < 2; r++) others[r] = push(&s.workers[r]);
    for (int r = 0; r < 2; r++) finish(&s.workers[r], others[r]);
    finish(slow, ticket);
    assert_int_equal(slow->items[0].outcome, 1);
    assert_int_equal(slow->items[0].step, STEPS + 1);
    assert_int_equal(slow->counts[0].counted, 3);
    assert_int_equal(slow->counts[0].age, 0);
    end(&s);
}

/* A worker that sends frames as clients did before there were such jobs. */
typedef struct old_worker {
    int fd;
    uint64_t id;
    pd_arena *arena;
} old_worker;

static void send_all(int fd, const void *at, size_t n)
{
    for (ssize_t sent; n > 0; at = (const char *)at + sent, n -= (size_t)sent)
        if ((sent = send(fd, at, n, MSG_NOSIGNAL)) <= 0) fail_msg("the daemon has closed the connection");
}

static void receive_all(int fd, void *at, size_t n)
{
    for (ssize_t got; n > 0; at = (char *)at + got, n -= (size_t)got)
        if ((got = recv(fd, at, n, 0)) <= 0) fail_msg("the daemon has closed the connection");
}

/* Sends a request with a payload, and returns the header of the answer. `weights` receives the answer's payload. */
static void *ask(old_worker *w, unsigned method, const ProtobufCMessage *request, const void *payload, size_t bytes,
                 float *weights, size_t room)
{
    uint8_t prefix_bytes[PD_PREFIX_BYTES], header[4096], *frame;
    struct iovec iov = { (void *)payload, bytes };
    pd_prefix prefix;
    pd_error err;
    void *reply;
    size_t n;

    assert_int_equal(pd_frame_pack_whole(&frame, &n, method, 0, ++w->id, request, &iov), PD_OK);
    send_all(w->fd, frame, n);
    free(frame);
    do {
        receive_all(w->fd, prefix_bytes, sizeof prefix_bytes);
        must(pd_prefix_read(&prefix, prefix_bytes, 1 << 20, &err), &err);
        assert_true(prefix.header_bytes <= sizeof header && prefix.payload_bytes <= room);
        receive_all(w->fd, header, prefix.header_bytes);
        receive_all(w->fd, weights, prefix.payload_bytes);
    } while (prefix.request != w->id);
    pd_arena_reset(w->arena);
    if ((prefix.flags & PD_FLAG_ERROR) != 0 && pd_message_error(w->arena, header, prefix.header_bytes, &err, NULL))
        fail_msg("%s: %s", pd_method_name(method), err.text);
    must(pd_reply_unpack(w->arena, method, header, prefix.header_bytes, &reply, &err), &err);
    return reply;
}

static old_worker old_worker_join(const scene *s)
{
    old_worker w = { .fd = socket(AF_INET, SOCK_STREAM, 0), .arena = pd_arena_new(PD_ARENA_BUDGET) };
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)s->daemon->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter declared[PARAMS], *list[PARAMS];
    Paramd__Option options[] = { PARAMD__OPTION__INIT, PARAMD__OPTION__INIT }, *both[] = { &options[0], &options[1] };
    char *rules[] = { (char *)"* sgd lr=1" };
    uint64_t shape[1] = { N };

    assert_int_equal(connect(w.fd, (const struct sockaddr *)&address, sizeof address), 0);
    hello.protocol = 1;
    hello.job = (char *)"q";
    hello.rank = SLOW;
    hello.world_size = WORLD;
    hello.nonce = 4711;
    hello.joins = true;
    options[0].name = (char *)"rounds";
    options[0].value = options[1].name = (char *)"quorum";
    options[1].value = (char *)"3";
    hello.options = both;
    hello.rules = rules;
    hello.n_rules = 1;
    hello.n_options = 2;
    ask(&w, PD_HELLO, &hello.base, NULL, 0, NULL, 0);
    for (int i = 0; i < PARAMS; i++) {
        paramd__parameter__init(&declared[i]);
        declared[i].name = (char *)params[i].name;
        declared[i].shape = shape;
        declared[i].n_shape = 1;
        list[i] = &declared[i];
    }
    declare.parameters = list;
    declare.n_parameters = PARAMS;
    declare.last = true;
    ask(&w, PD_DECLARE, &declare.base, NULL, 0, NULL, 0);
    return w;
}

/* Pushes both parameters for a step in one frame, and receives their weights. */
static const Paramd__DataReply *old_worker_push(old_worker *w, uint64_t step, float *weights, size_t room)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece pieces[PARAMS], *list[PARAMS];
    float gradients[16 + N] = { 0 };

    for (int i = 0; i < PARAMS; i++) {
        paramd__piece__init(&pieces[i]);
        pieces[i].handle = (uint32_t)i;
        pieces[i].dtype = PD_F32;
        pieces[i].count = N;
        pieces[i].offset = 64 * (uint64_t)i;
        list[i] = &pieces[i];
    }
    push.step = step;
    push.pieces = list;
    push.n_pieces = PARAMS;
    return ask(w, PD_PUSH_PULL, &push.base, gradients, sizeof gradients, weights, room);
}

TEST(a_worker_that_knows_nothing_of_such_jobs_is_told_late_and_goes_on)
{
    const Paramd__DataReply *reply;
    float weights[32];
    old_worker old;
    scene s;

    begin(&s, SLOW);
    old = old_worker_join(&s);
    for (int step = 0; step < 7; step++) step_without_the_slow_one(&s);
    reply = old_worker_push(&old, 1, weights, sizeof weights);
    assert_int_equal(reply->n_outcomes, PARAMS);
    for (int i = 0; i < PARAMS; i++) {
        assert_int_equal(reply->outcomes[i]->outcome, LATE);
        assert_int_equal(reply->outcomes[i]->step, 7);
        assert_int_equal(reply->outcomes[i]->version, 7);
        assert_float_equal(weights[16 * i], -7, 0);
    }
    for (int r = 0; r < 2; r++) push(&s.workers[r]); /* together with the old worker they are a quorum */
    reply = old_worker_push(&old, reply->outcomes[0]->step + 1, weights, sizeof weights);
    assert_int_equal(reply->outcomes[0]->outcome, 1);
    assert_int_equal(reply->outcomes[0]->step, 8);
    close(old.fd);
    pd_arena_free(old.arena);
    end(&s);
}
