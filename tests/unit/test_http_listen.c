/* Tests the HTTP listener on real sockets: it answers while jobs are loaded, stays while the daemon drains, and is
 * closed to other machines unless requests bring a token. */
#include <stdatomic.h>
#include <sys/socket.h>

#include "test.h"
#include "config.h"
#include "daemon.h"
#include "daemon_process.h"
#include "lifecycle.h"
#include "http_ask.h"
#include "reach.h"
#include "small_daemon.h"

WITH_THREADS();

static atomic_int events;

static void count_event(void *arg, pd_daemon_event event)
{
    (void)arg;
    if (event == PD_DAEMON_LOADS) atomic_fetch_add(&events, 1);
}

static atomic_int reloads;

static void count_reload(void *arg)
{
    (void)arg;
    atomic_fetch_add(&reloads, 1);
}

static bool changes_nothing(void *arg, pd_daemon_limits *limits)
{
    (void)arg, (void)limits;
    return false;
}

static pd_daemon *make(void)
{
    pd_daemon_config config = small_daemon();
    pd_daemon *daemon;

    config.listen = config.http_listen = "127.0.0.1:0";
    config.hooks.event = count_event;
    config.hooks.reload = count_reload;
    config.hooks.reloaded = changes_nothing;
    assert_int_equal(pd_daemon_new(&daemon, &config, NULL), PD_OK);
    assert_int_equal(pd_daemon_listen(daemon, NULL), PD_OK);
    assert_int_equal(pd_daemon_listen_http(daemon, NULL), PD_OK);
    assert_true(pd_daemon_http_port(daemon) > 0);
    return daemon;
}

/* A client that asks for readiness on the thread that loads, and what it gets. */
typedef struct client {
    const pd_daemon *daemon;
    char answer[1024];
    int idle; /* a connection that says nothing */
} client;

static void load(void *arg)
{
    static const char request[] = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client *c = arg;
    int fd = loopback_connect((int)pd_daemon_http_port(c->daemon));
    size_t n = 0;
    ssize_t got;

    if (send(fd, request, sizeof request - 1, 0) != (ssize_t)sizeof request - 1) abort();
    while ((got = recv(fd, c->answer + n, sizeof c->answer - 1 - n, 0)) > 0) n += (size_t)got;
    close(fd);
}

TEST(a_daemon_that_loads_jobs_says_so)
{
    pd_daemon *daemon = make();
    client c = { .daemon = daemon };

    pd_daemon_load(daemon, load, &c);
    assert_non_null(strstr(c.answer, "503 Service Unavailable"));
    assert_non_null(strstr(c.answer, "\r\n\r\nrecovering\n"));
    pd_daemon_free(daemon);
}

static bool is_reported(void *arg)
{
    (void)arg;
    return atomic_load(&events) > 1;
}

static void wait_for_events(void *arg)
{
    *(bool *)arg = await(is_reported, NULL, patient(10));
}

TEST(loading_is_reported_again_and_again)
{
    pd_daemon *daemon = make();
    bool reported = false;

    pd_daemon_load(daemon, wait_for_events, &reported);
    assert_true(reported);
    pd_daemon_free(daemon);
}

/* Connects and says nothing. The connection is accepted before the next one, which gets an answer. */
static void connect_and_wait(void *arg)
{
    client *c = arg;

    c->idle = loopback_connect((int)pd_daemon_http_port(c->daemon));
    load(c);
}

TEST(a_daemon_whose_start_fails_does_not_wait_for_idle_connections)
{
    pd_daemon *daemon = make();
    client c = { .daemon = daemon };

    pd_daemon_load(daemon, connect_and_wait, &c);
    pd_daemon_free(daemon);
    close(c.idle);
}

/* Connects as a worker does, and asks for an answer after that. */
static void connect_worker(void *arg)
{
    client *c = arg;

    c->idle = loopback_connect((int)pd_daemon_port(c->daemon));
    load(c);
}

static void free_all(pd_mailbox *requests)
{
    for (pd_mail *mail = pd_mailbox_take(requests), *next; mail != NULL; mail = next) {
        next = mail->next;
        pd_request_free((pd_request *)(void *)mail);
    }
    pd_mailbox_free(requests);
}

TEST(a_worker_that_connects_while_jobs_are_loaded_waits)
{
    pd_daemon *daemon = make();
    pd_mailbox *requests = pd_mailbox_new(NULL, NULL);
    client c = { .daemon = daemon };
    bool accepted = false;

    pd_daemon_load(daemon, connect_worker, &c);
    assert_false(daemon->table.n > 0);
    pd_daemon_begin(daemon, requests);
    for (int i = 0; i < 1000 && !accepted; i++) accepted = pd_daemon_turn(daemon);
    assert_true(accepted);
    close(c.idle);
    pd_daemon_end(daemon);
    pd_daemon_free(daemon);
    free_all(requests);
}

static bool has_reloaded(void *arg)
{
    pd_daemon_turn(arg);
    return atomic_load(&reloads) > 0;
}

TEST(a_reload_while_jobs_are_loaded_follows_the_start)
{
    pd_daemon *daemon = make();
    pd_mailbox *requests = pd_mailbox_new(NULL, NULL);
    bool reported = false;

    atomic_store(&events, 0);
    pd_reloading_begin(daemon);
    pd_daemon_load(daemon, wait_for_events, &reported);
    assert_true(reported);
    assert_int_equal(atomic_load(&reloads), 0);
    pd_daemon_begin(daemon, requests);
    assert_true(await(has_reloaded, daemon, patient(10)));
    pd_daemon_end(daemon);
    pd_daemon_free(daemon);
    free_all(requests);
}

TEST(a_daemon_that_drains_still_answers)
{
    pd_daemon *daemon = make();
    pd_mailbox *requests = pd_mailbox_new(NULL, NULL);
    char answer[1024] = "";
    int fd;

    pd_daemon_begin(daemon, requests);
    pd_conversation_end(daemon, "test");
    fd = loopback_connect((int)pd_daemon_http_port(daemon));
    assert_int_equal(send(fd, "GET /readyz HTTP/1.0\r\n\r\n", 24, 0), 24);
    for (int i = 0; i < 1000 && recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT) <= 0; i++) pd_daemon_turn(daemon);
    assert_non_null(strstr(answer, "\r\n\r\ndraining\n"));
    close(fd);
    pd_daemon_end(daemon);
    pd_daemon_free(daemon);
    free_all(requests);
}

TEST(other_machines_reach_the_listener_only_if_requests_bring_a_token)
{
    const pd_reach bare = { .http = true }, guarded = { .http = true, .open = true };
    pd_error err;

    assert_int_equal(pd_reach_check_setting(&bare, "", &err), PD_OK);
    assert_int_equal(pd_reach_check_setting(&bare, "127.0.0.1:7072, [::1]:7072, unix:///run/x", &err), PD_OK);
    assert_int_equal(pd_reach_check_setting(&bare, "*:7072", &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "http.token"));
    assert_int_equal(pd_reach_check_setting(&guarded, "*:7072", &err), PD_OK);
    assert_int_equal(pd_reach_check_setting(&bare, "nonsense", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "http.listen"));
}

TEST(the_short_name_listen_is_that_of_the_server)
{
    pd_config *config = pd_config_new();

    assert_string_equal(pd_config_find(config, "listen")->section, "server");
    assert_string_equal(pd_config_find(config, "http_listen")->section, "http");
    pd_config_free(config);
}
