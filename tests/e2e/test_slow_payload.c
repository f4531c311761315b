/* Tests links that become slow, or stop, at random points of a large payload. Slow weights are progress for the client,
 * however many bytes it lets gather, and so are slow gradients, also where the network holds all that remains of them
 * (unit.gather_daemon tests how the daemon receives them). A link that stops is given up as any silent one, and the
 * step ends with the same weights. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "proxy.h"

/* 1 KiB every 10 ms is far less than what gathers of a fast payload. SLOW_BYTES take 2.5 s: longer than the client's
 * timeout. */
enum { N = 2 << 20, PAYLOAD = 4 * N, TRICKLE = 1024, SLOW_BYTES = 250 * TRICKLE, POINTS = 3 };

static const pd_client_param params[] = { { .name = "p", .shape = { .rank = 1, .dim = { N } } } };

/* A job with one worker, whose gradient is 1 everywhere, behind a proxy. */
typedef struct scene {
    test_daemon *daemon;
    proxy *link;
    pd_client *client;
    pd_item item;
    float *gradient, *weights;
    int steps;
} scene;

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static pd_ticket_id push(scene *s)
{
    pd_ticket_id ticket;
    pd_error err;

    must(pd_client_push_pull(s->client, &s->item, 1, NULL, &ticket, &err), &err);
    s->steps++;
    return ticket;
}

static void finish(scene *s, pd_ticket_id ticket)
{
    pd_error err;

    must(pd_client_wait(s->client, ticket, patient(30), &err), &err);
    for (size_t i = 0; i < N; i++)
        if (s->weights[i] != (float)-s->steps) fail_msg("weight %zu is %g after %d steps", i, s->weights[i], s->steps);
}

static void set_up(scene *s)
{
    static const char *const flags[] = { "--heartbeat-interval=100ms", "--heartbeat-timeout=1s", NULL };
    static const char *const rules[] = { "* sgd lr=1", NULL };
    char url[64];
    pd_client_options how = {
        .urls = url, .job = "j", .world_size = 1, .rules = rules, .deadline = patient(60), .quiet = true
    };
    pd_error err;

    s->daemon = daemon_start(flags);
    s->link = proxy_start(s->daemon->port);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", proxy_port(s->link));
    s->gradient = malloc(PAYLOAD);
    s->weights = calloc(N, sizeof *s->weights);
    for (size_t i = 0; i < N; i++) s->gradient[i] = 1;
    s->item = (pd_item){ .gradient = s->gradient, .weights = s->weights };
    must(pd_client_open(&s->client, &how, &err), &err);
    must(pd_client_declare(s->client, params, 1, &err), &err);
    must(pd_client_init(s->client, (void *const[]){ s->weights }, &err), &err);
    for (int i = 0; i < 3; i++) finish(s, push(s));
}

static void tear_down(scene *s)
{
    pd_client_close(s->client);
    proxy_stop(s->link);
    daemon_end(s->daemon);
    free(s->gradient);
    free(s->weights);
}

FIXTURE(scene, set_up, tear_down);

/* Returns how many bytes a step takes in one direction. */
static size_t bytes_of_step(scene *s, bool to_client)
{
    size_t before = proxy_forwarded(s->link, to_client);

    finish(s, push(s));
    return proxy_forwarded(s->link, to_client) - before;
}

/* Slows the link down after some bytes of a step, for longer than the client's timeout. */
static void slow_after(scene *s, bool to_client, size_t bytes)
{
    pd_ticket_id ticket;

    proxy_slow_after(s->link, to_client, bytes, TRICKLE);
    ticket = push(s);
    assert_true(proxy_await_slow(s->link, SLOW_BYTES, patient(20)));
    proxy_hurry(s->link);
    finish(s, ticket);
}

TEST(slow_weights_are_no_silence, scene *s)
{
    unsigned seed = 7;

    for (int i = 0; i < POINTS; i++) slow_after(s, true, (size_t)rand_r(&seed) % (PAYLOAD - 2 * SLOW_BYTES));
    assert_int_equal(proxy_connections(s->link), 1);
}

TEST(gradients_that_the_network_holds_are_no_silence, scene *s)
{
    slow_after(s, false, PAYLOAD - 2 * SLOW_BYTES);
    assert_int_equal(proxy_connections(s->link), 1);
}

typedef struct connected {
    proxy *link;
    int times;
} connected;

static bool have_connected(void *arg)
{
    const connected *wanted = arg;

    return proxy_connections(wanted->link) >= wanted->times;
}

/* Stops the link after some bytes of a step, until the client has connected anew. */
static void stop_after(scene *s, bool to_client, size_t bytes)
{
    connected anew = { s->link, proxy_connections(s->link) + 1 };
    pd_ticket_id ticket;

    proxy_slow_after(s->link, to_client, bytes, 0);
    ticket = push(s);
    assert_true(await(have_connected, &anew, patient(20)));
    proxy_hurry(s->link);
    finish(s, ticket);
}

static void check_stop(scene *s, bool to_client)
{
    size_t all = bytes_of_step(s, to_client);
    unsigned seed = 11;

    for (int i = 0; i < POINTS - 1; i++) stop_after(s, to_client, (size_t)rand_r(&seed) % PAYLOAD);
    stop_after(s, to_client, all - 1);
}

TEST(gradients_that_stop_also_one_byte_short_are_sent_again, scene *s)
{
    check_stop(s, false);
}

TEST(weights_that_stop_also_one_byte_short_are_pulled_again, scene *s)
{
    check_stop(s, true);
}
