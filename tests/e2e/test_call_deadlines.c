/* Tests that no call of the client outlives its deadline, whatever has stopped: name servers, the network, the daemon.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "handle.h"
#include "names.h"
#include "proxy.h"
#include "team.h"

#define DEADLINE 1.0
/* Seconds by which a call may outlive its deadline: more than the 0.2 s of the figure deadline_overrun_s, since a
 * machine that runs tests is busy. */
#define MOST_OVER 0.5
/* Seconds that pd_client_close may take: it waits for nothing, but it cannot be tried again. */
#define MOST_CLOSE 5.0

enum { TRIES = 5 };

static const char *const rules[] = { "* sgd lr=1", NULL };
static const char *const in_the_open[] = { NULL };

/* Returns whether a call that ends now has ended in time. Fails the test if it has not in several tries: a busy machine
 * makes some calls slow, and none fast. */
static bool is_in_time(double begin, double deadline, int *tries, const char *what)
{
    double took = seconds_now() - begin;

    if (took <= deadline + patient(MOST_OVER)) return true;
    if (++*tries == TRIES) fail_msg("%s: took %.2f s, its deadline was %.2f s", what, took, deadline);
    return false;
}

/* Opens a handle, which must fail in time. `reason` is a part of the error. */
static void open_in_vain(const char *urls, const char *reason)
{
    const pd_client_options options = { .urls = urls, .job = "late", .deadline = DEADLINE, .world_size = 1 };
    pd_client *client = NULL;
    pd_error err = { 0 };
    double begin;
    int tries = 0;

    do {
        begin = seconds_now();
        assert_int_equal(pd_client_open(&client, &options, &err), PD_UNAVAILABLE);
        assert_null(client);
        if (strstr(err.text, reason) == NULL) fail_msg("expected \"%s\" in: %s", reason, err.text);
    } while (!is_in_time(begin, DEADLINE, &tries, "pd_client_open"));
}

static void close_in_time(pd_client *client)
{
    double begin = seconds_now();

    pd_client_close(client);
    assert_true(seconds_now() - begin < patient(MOST_CLOSE));
}

/* Closes a handle that tries to connect. */
static void close_at_once(const char *urls)
{
    const pd_client_options options = { .urls = urls, .job = "late", .join_later = true, .world_size = 1 };
    pd_client *client = NULL;
    pd_error err = { 0 };

    assert_int_equal(pd_client_open(&client, &options, &err), PD_OK);
    sleep_for(0.1); /* the I/O thread begins to connect; where it has not, the test shows less */
    close_in_time(client);
}

TEST(silent_name_servers_hold_no_call)
{
    names_hang();
    open_in_vain("tcp://localhost:7070", "no answer from the name servers");
    close_at_once("tcp://localhost:7070");
    close_at_once("tls://localhost:7070");
    names_answer();
}

TEST(a_host_of_several_is_reached_though_name_servers_are_silent, const test_daemon *daemon)
{
    pd_client_options options = { .job = "other", .world_size = 1, .deadline = patient(20) };
    char urls[128];
    pd_client *client;
    pd_error err = { 0 };

    snprintf(urls, sizeof urls, "tcp://localhost:1,tcp://127.0.0.1:%d", daemon->port);
    options.urls = urls;
    names_hang();
    if (pd_client_open(&client, &options, &err) != PD_OK) fail_msg("%s", err.text);
    pd_client_close(client);
    names_answer();
}

/* A listener that takes no connection. */
typedef struct deaf {
    int listener, fill[4];
    char url[2][64]; /* over TCP, over TLS */
} deaf;

static void deaf_start(deaf *d, int backlog)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;

    d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(d->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(d->listener, backlog), 0);
    getsockname(d->listener, (struct sockaddr *)&address, &size);
    for (int i = 0; i < 2; i++)
        snprintf(d->url[i], sizeof d->url[i], "%s://127.0.0.1:%d", i == 0 ? "tcp" : "tls", ntohs(address.sin_port));
    for (size_t i = 0; i < sizeof d->fill / sizeof *d->fill; i++) {
        d->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(d->fill[i], (struct sockaddr *)&address, sizeof address);
    }
}

static void deaf_stop(deaf *d)
{
    close(d->listener);
    for (size_t i = 0; i < sizeof d->fill / sizeof *d->fill; i++) close(d->fill[i]);
}

TEST(a_black_hole_holds_no_call)
{
    deaf hole;

    deaf_start(&hole, 0); /* its queue is full, so the kernel answers no further connection */
    open_in_vain(hole.url[0], "no answer yet");
    close_at_once(hole.url[0]);
    deaf_stop(&hole);
}

TEST(a_server_that_accepts_and_says_nothing_holds_no_call)
{
    deaf silent;

    deaf_start(&silent, 64);
    for (int i = 0; i < 2; i++) {
        open_in_vain(silent.url[i], "no answer yet");
        close_at_once(silent.url[i]);
    }
    deaf_stop(&silent);
}

/* Accepts a connection, and sends it the begin of a frame: 10 bytes of a prefix of 24. */
static void *send_half(void *arg)
{
    static const uint8_t half[10] = { 16, 0, 0, 0, 1, 1, 1, 0, 0, 0 };
    const deaf *d = arg;
    int fd;

    for (size_t i = 0; i <= sizeof d->fill / sizeof *d->fill; i++) {
        fd = accept(d->listener, NULL, NULL); /* stays open until the test's process ends */
        if (write(fd, half, sizeof half) < 0) return NULL;
    }
    return NULL;
}

TEST(half_a_frame_holds_no_call)
{
    pthread_t thread;
    deaf silent;

    deaf_start(&silent, 64);
    assert_int_equal(pthread_create(&thread, NULL, send_half, &silent), 0);
    open_in_vain(silent.url[0], "no answer yet");
    pthread_join(thread, NULL);
    deaf_stop(&silent);
}

typedef struct handle {
    pd_client *client;
    model *m;
    float **weights, **gradients;
    pd_item item;
} handle;

static const int64_t small[] = { 8 };

/* Opens the handle of a lone worker with one parameter. Its calls have a long deadline until hurry. */
static void open_handle(handle *h, const char *url, const char *job, const int64_t *elements)
{
    const pd_client_options options = {
        .urls = url, .job = job, .world_size = 1, .rules = rules, .deadline = patient(20), .quiet = true
    };
    pd_error err = { 0 };

    h->m = model_new(elements, 1);
    h->weights = model_buffers(h->m);
    h->gradients = model_buffers(h->m);
    if (pd_client_open(&h->client, &options, &err) != PD_OK) fail_msg("%s", err.text);
}

static void hurry(handle *h)
{
    h->client->deadline = h->client->slice = DEADLINE;
}

static void prepare_handle(handle *h)
{
    pd_error err = { 0 };

    if (pd_client_declare(h->client, h->m->params, 1, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_init(h->client, (void *const *)h->weights, &err) != PD_OK) fail_msg("%s", err.text);
    h->item = (pd_item){ .gradient = h->gradients[0], .weights = h->weights[0] };
}

static void close_handle(handle *h)
{
    close_in_time(h->client);
    model_free_buffers(h->m, h->weights);
    model_free_buffers(h->m, h->gradients);
    model_free(h->m);
}

/* Makes a call that must end with PD_DEADLINE_EXCEEDED in time. */
#define LATE(call)                                                                                                     \
    do {                                                                                                               \
        double begin_;                                                                                                 \
        int tries_ = 0;                                                                                                \
        do {                                                                                                           \
            begin_ = seconds_now();                                                                                    \
            int rc_ = (call);                                                                                          \
            if (rc_ != PD_DEADLINE_EXCEEDED) fail_msg("%s: %d: %s", #call, rc_, err.text);                             \
            assert_memory_equal(err.text, "waited", 6);                                                                \
        } while (!is_in_time(begin_, DEADLINE, &tries_, #call));                                                       \
    } while (0)

static void late_calls(handle *h)
{
    pd_ticket_id ticket, closing, pulling;
    pd_item pulled = h->item;
    uint64_t step;
    size_t bytes;
    pd_error err = { 0 };

    LATE(pd_client_sync(h->client, 1, &err));
    LATE(pd_client_recall(h->client, NULL, 0, &bytes, &step, &err));
    LATE(pd_client_replace(h->client, &h->item, 1, 7, &err));
    LATE(pd_client_barrier(h->client, &err));
    LATE(pd_client_init(h->client, (void *const *)h->weights, &err));
    assert_int_equal(pd_client_pull(h->client, &pulled, 1, 1, &pulling, &err), PD_OK);
    LATE(pd_client_wait(h->client, pulling, 0, &err));
    assert_int_equal(pd_client_push_pull(h->client, &h->item, 1, NULL, &ticket, &err), PD_OK);
    LATE(pd_client_wait(h->client, ticket, 0, &err));
    LATE(pd_client_wait(h->client, ticket, DEADLINE, &err));
    assert_int_equal(pd_client_close_step(h->client, 1, &closing, &err), PD_OK);
    LATE(pd_client_wait(h->client, closing, 0, &err));
    LATE(pd_client_leave(h->client, &err));
}

TEST(a_stopped_daemon_holds_no_call)
{
    test_daemon *daemon = daemon_start(in_the_open);
    handle h, new;
    pd_error err = { 0 };

    open_handle(&h, daemon->url, "stopped", small);
    prepare_handle(&h);
    open_handle(&new, daemon->url, "undeclared", small);
    daemon_freeze(daemon);
    hurry(&h);
    hurry(&new);
    LATE(pd_client_declare(new.client, new.m->params, 1, &err));
    close_handle(&new);
    late_calls(&h);
    close_handle(&h);
    open_in_vain(daemon->url, "no answer yet");
    daemon_kill(daemon);
}

/* A stopped daemon's kernel acknowledges. A connection whose path was cut would be replaced after some 3 s. */
TEST(a_daemon_that_stops_for_a_while_keeps_its_connection)
{
    static const int64_t some[] = { 1 << 14 };
    test_daemon *daemon = daemon_start(NULL);
    pd_ticket_id ticket;
    handle h;
    pd_error err = { 0 };

    open_handle(&h, daemon->url, "paused", some);
    prepare_handle(&h);
    daemon_freeze(daemon);
    assert_int_equal(pd_client_push_pull(h.client, &h.item, 1, NULL, &ticket, &err), PD_OK);
    sleep_for(4); /* nothing may happen in this time */
    daemon_thaw(daemon);
    if (pd_client_wait(h.client, ticket, patient(20), &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(pd_client_count(h.client).connects, 1);
    close_handle(&h);
    daemon_kill(daemon);
}

TEST(a_restart_has_a_deadline)
{
    test_daemon *daemon = daemon_start(NULL);
    char listen[64];
    const char *const flags[] = { listen, NULL };
    pd_ticket_id ticket;
    handle h;
    int rc;
    pd_error err = { 0 };

    open_handle(&h, daemon->url, "lost", small);
    prepare_handle(&h);
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", daemon->port);
    daemon_kill(daemon);
    daemon = daemon_start(flags);
    rc = pd_client_push_pull(h.client, &h.item, 1, NULL, &ticket, &err); /* the handle may know the loss already */
    if (rc == PD_OK) rc = pd_client_wait(h.client, ticket, patient(10), &err);
    if (rc != PD_DATA_LOSS) fail_msg("%d: %s", rc, err.text);
    daemon_freeze(daemon);
    hurry(&h);
    LATE(pd_client_restart(h.client, (void *const *)h.weights, &err));
    close_handle(&h);
    daemon_kill(daemon);
}

TEST(a_call_of_two_parts_has_one_deadline, const test_daemon *daemon)
{
    proxy *between = proxy_start(daemon->port);
    pd_error err = { 0 };
    char url[64];
    handle h;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", proxy_port(between));
    open_handle(&h, url, "parts", small);
    assert_int_equal(pd_client_declare(h.client, h.m->params, 1, &err), PD_OK);
    proxy_delay(between, 0.45 * DEADLINE); /* the first part, which sends the weights, takes 0.9 of the deadline */
    hurry(&h);
    assert_int_equal(pd_client_init(h.client, (void *const *)h.weights, &err), PD_DEADLINE_EXCEEDED);
    proxy_delay(between, 0);
    close_handle(&h);
    proxy_stop(between);
}

GROUP_OBJECT(daemon_start(NULL), daemon_end);
