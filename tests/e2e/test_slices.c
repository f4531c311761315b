/* Tests the ways in which a program can wait without giving its thread to the library: short calls that are made again,
 * a descriptor for event loops, and several threads that wait at once. */
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

#define NOBODY "tcp://127.0.0.1:1" /* a port on which nobody listens */
#define SLICE 0.05

enum { PARAMS = 6, ROUNDS = 20 };

/* A job with one worker or two, PARAMS parameters of one element each, and plain SGD with lr=1. */
typedef struct worker {
    pd_client *client;
    float weights[PARAMS], gradients[PARAMS];
    pd_item items[PARAMS];
    int notices;
} worker;

static void count_notice(void *arg, const char *text)
{
    (void)text;
    ++*(int *)arg;
}

static int open_worker(worker *w, const char *url, int rank, int world_size, double deadline, pd_error *err)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };

    memset(w, 0, sizeof *w);
    return pd_client_open(&w->client,
                          &(pd_client_options){ .urls = url,
                                                .job = "j",
                                                .rank = rank,
                                                .world_size = world_size,
                                                .rules = rules,
                                                .deadline = deadline,
                                                .notice = count_notice,
                                                .notice_arg = &w->notices,
                                                .join_later = true,
                                                .slice = SLICE },
                          err);
}

/* Makes a call again and again until it has an end, as a program with short slices does. */
#define REPEAT(call)                                                                                                   \
    do {                                                                                                               \
        int rc;                                                                                                        \
        pd_error failure;                                                                                              \
        while ((rc = (call)) == PD_DEADLINE_EXCEEDED && strncmp(failure.text, "waited", 6) == 0) {}                    \
        if (rc != PD_OK) fail_msg("%s", failure.text);                                                                 \
    } while (0)

static void begin(worker *w, const char *url, int rank, int world_size)
{
    static const char *const names[PARAMS] = { "a", "b", "c", "d", "e", "f" };
    pd_client_param params[PARAMS];
    void *weights[PARAMS];
    pd_error err;

    assert_int_equal(open_worker(w, url, rank, world_size, patient(30), &err), PD_OK);
    for (int i = 0; i < PARAMS; i++) {
        params[i] = (pd_client_param){ .name = names[i], .shape = { 1, { 1 } } };
        weights[i] = &w->weights[i];
        w->gradients[i] = 1;
        w->items[i] = (pd_item){ .param = (size_t)i, .gradient = &w->gradients[i], .weights = &w->weights[i] };
    }
    REPEAT(pd_client_join(w->client, &failure));
    REPEAT(pd_client_declare(w->client, params, PARAMS, &failure));
    REPEAT(pd_client_init(w->client, weights, &failure));
}

static pd_ticket_id push(worker *w, int item)
{
    pd_ticket_id ticket;
    pd_error err;

    if (pd_client_push_pull(w->client, &w->items[item], 1, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return ticket;
}

static bool is_readable(int fd, double seconds)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    return poll(&wait, 1, (int)(seconds * 1000)) == 1;
}

TEST(a_client_is_opened_before_there_is_a_server_and_joins_later)
{
    worker w;
    pd_error err;
    double begun = seconds_now();

    assert_int_equal(open_worker(&w, NOBODY, 0, 1, 60, &err), PD_OK);
    assert_int_equal(pd_client_join(w.client, &err), PD_DEADLINE_EXCEEDED);
    assert_int_equal(strncmp(err.text, "waited 0.05 s: not connected now (", 34), 0);
    assert_true(seconds_now() - begun < patient(5));
    pd_client_close(w.client);
}

TEST(short_calls_give_the_same_notice_as_a_long_one)
{
    worker w;
    pd_error err;
    double begun;

    assert_int_equal(open_worker(&w, NOBODY, 0, 1, 60, &err), PD_OK);
    for (begun = seconds_now(); w.notices == 0 && seconds_now() - begun < patient(20);) pd_client_join(w.client, &err);
    assert_int_equal(w.notices, 1);
    assert_true(seconds_now() - begun >= 2);
    for (int i = 0; i < 3; i++) pd_client_join(w.client, &err);
    assert_int_equal(w.notices, 1);
    pd_client_close(w.client);
}

TEST(a_refused_worker_hears_of_it_when_it_joins, const test_daemon *daemon)
{
    static const char *const rules[] = { "* nosuch", NULL };
    pd_client *client;
    pd_error err;
    int rc;

    assert_int_equal(
        pd_client_open(&client,
                       &(pd_client_options){
                           .urls = daemon->url, .job = "k", .world_size = 1, .rules = rules, .join_later = true },
                       &err),
        PD_OK);
    rc = pd_client_join(client, &err);
    assert_true(rc == PD_NOT_FOUND || rc == PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "nosuch"));
    pd_client_close(client);
}

TEST(calls_in_slices_do_the_work_of_long_ones, const test_daemon *daemon)
{
    worker w;
    pd_ticket_id ticket;

    begin(&w, daemon->url, 0, 1);
    assert_true(pd_client_welcome(w.client)->created);
    ticket = push(&w, 0);
    REPEAT(pd_client_wait(w.client, ticket, SLICE, &failure));
    assert_true(w.weights[0] == -1);
    REPEAT(pd_client_barrier(w.client, &failure));
    REPEAT(pd_client_leave(w.client, &failure));
    pd_client_close(w.client);
}

TEST(the_descriptor_is_readable_at_first_and_whenever_a_ticket_is_done, const test_daemon *daemon)
{
    worker w;
    eventfd_t count;
    int fd;

    begin(&w, daemon->url, 0, 1);
    fd = pd_client_fd(w.client);
    assert_true(fd >= 0);
    assert_int_equal(pd_client_fd(w.client), fd);
    assert_true(is_readable(fd, 0));
    assert_int_equal(eventfd_read(fd, &count), 0);
    for (int i = 0; i < ROUNDS; i++) {
        pd_ticket_id ticket = push(&w, 0);
        while (!pd_client_ready(w.client, ticket)) {
            assert_true(is_readable(fd, patient(30)));
            assert_int_equal(eventfd_read(fd, &count), 0);
        }
        assert_int_equal(pd_client_wait(w.client, ticket, 0, NULL), PD_OK);
        while (is_readable(fd, 0)) assert_int_equal(eventfd_read(fd, &count), 0);
    }
    pd_client_close(w.client);
}

TEST(the_descriptor_is_not_readable_while_a_ticket_waits_for_another_rank, const test_daemon *daemon)
{
    worker w, other;
    eventfd_t count;
    pd_error err;
    int fd;

    assert_int_equal(open_worker(&other, daemon->url, 1, 2, patient(30), &err), PD_OK);
    assert_int_equal(open_worker(&w, daemon->url, 0, 2, patient(30), &err), PD_OK);
    REPEAT(pd_client_join(w.client, &failure));
    fd = pd_client_fd(w.client);
    assert_int_equal(eventfd_read(fd, &count), 0);
    assert_int_equal(pd_client_barrier(w.client, &err), PD_DEADLINE_EXCEEDED); /* the other rank does not come */
    assert_false(is_readable(fd, 0));
    pd_client_close(w.client);
    pd_client_close(other.client);
}

TEST(the_descriptor_is_readable_when_the_handle_ends_with_an_error)
{
    test_daemon *daemon = daemon_start(NULL);
    char line[256];
    worker w;
    eventfd_t count;
    pd_ticket_id ticket;
    pd_error err;
    int fd;

    begin(&w, daemon->url, 0, 1);
    fd = pd_client_fd(w.client);
    assert_int_equal(eventfd_read(fd, &count), 0);
    daemon_freeze(daemon);
    ticket = push(&w, 0);
    assert_false(pd_client_ready(w.client, ticket));
    daemon_thaw(daemon);
    snprintf(line, sizeof line, "%s/paramctl drop j -s %s >/dev/null", getenv("PARAMD_BIN"), daemon->url);
    assert_int_equal(system(line), 0);
    while (!pd_client_ready(w.client, ticket)) {
        assert_true(is_readable(fd, patient(30)));
        assert_int_equal(eventfd_read(fd, &count), 0);
    }
    pd_client_wait(w.client, ticket, 0, &err);
    pd_client_close(w.client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

typedef struct task {
    worker *w;
    int item, failures;
} task;

/* Pushes one parameter in every round, and waits for the ticket. */
static void *run_rounds(void *arg)
{
    task *t = arg;

    for (int i = 0; i < ROUNDS; i++) {
        pd_ticket_id ticket;
        pd_error err;
        if (pd_client_push_pull(t->w->client, &t->w->items[t->item], 1, NULL, &ticket, &err) != PD_OK ||
            pd_client_wait(t->w->client, ticket, patient(30), &err) != PD_OK)
            t->failures++;
    }
    return NULL;
}

TEST(threads_push_and_wait_at_once, const test_daemon *daemon)
{
    pthread_t threads[PARAMS];
    task tasks[PARAMS];
    worker w;

    begin(&w, daemon->url, 0, 1);
    for (int i = 0; i < PARAMS; i++) {
        tasks[i] = (task){ &w, i, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, &tasks[i]), 0);
    }
    for (int i = 0; i < PARAMS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(tasks[i].failures, 0);
        assert_true(w.weights[i] == -ROUNDS);
    }
    pd_client_close(w.client);
}

OBJECT(daemon_start(NULL), daemon_end);
