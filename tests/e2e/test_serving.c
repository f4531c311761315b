/* Tests the daemon as workers see it: late starts, addresses, draining, budgets, many jobs. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "team.h"

static const char *const rules[] = { "* sgd lr=1", NULL };
static const int64_t sizes[] = { 3000, 10 };

static bool three_counts(worker *w)
{
    for (int i = 1; i <= 3; i++) {
        if (!worker_count(w)) return false;
        if (!worker_counted(w, i)) return worker_fail(w, "the weights do not count the steps", NULL);
    }
    return true;
}

/* Trains a job that is named after the address. A finished job lingers with its weights, so each address needs a job
 * of another name. */
static void expect_training_at(const char *url)
{
    model *m = model_new(sizes, 2);
    team t = { .url = url, .job = url, .world = 1, .rules = rules, .model = m, .zero = true, .work = three_counts };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    team_free(&t, workers);
    model_free(m);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;

    if (fd >= 0) close(fd);
    return has;
}

TEST(serves_a_name_an_ipv6_address_and_a_unix_socket)
{
    char path[64], url[128], listen[128];
    const char *flags[] = { listen, NULL };
    test_daemon *daemon;

    snprintf(path, sizeof path, "/tmp/paramd-test-%d.sock", (int)getpid());
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:0,%sunix://%s", has_ipv6() ? "[::1]:0," : "", path);
    daemon = daemon_start(flags);
    snprintf(url, sizeof url, "tcp://localhost:%d", daemon->port);
    expect_training_at(url);
    snprintf(url, sizeof url, "unix://%s", path);
    expect_training_at(url);
    if (has_ipv6()) {
        int port = daemon_port_of(daemon, "listening on [::1]:");
        assert_true(port > 0);
        snprintf(url, sizeof url, "tcp://[::1]:%d", port);
        expect_training_at(url);
    }
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    assert_int_equal(access(path, F_OK), -1); /* the daemon has removed its socket file */
}

TEST(an_address_that_does_not_answer_is_passed_over)
{
    test_daemon *daemon = daemon_start(NULL);
    char urls[256];

    snprintf(urls, sizeof urls, "unix:///nowhere/at/all,tcp://127.0.0.1:1,%s", daemon->url);
    expect_training_at(urls);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

static void *train_at(void *arg)
{
    worker *w = arg;
    if (worker_open(w, w->team, 0) && worker_declare(w) && three_counts(w)) worker_leave(w);
    return NULL;
}

TEST(a_worker_may_come_before_the_daemon)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char url[64], listen_flag[64];
    const char *flags[] = { listen_flag, NULL };
    model *m = model_new(sizes, 2);
    team t = { .url = url, .job = "early", .world = 1, .rules = rules, .model = m, .zero = true };
    worker w = { .team = &t };
    pthread_t thread;
    test_daemon *daemon;

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0); /* finds a port that is free now */
    getsockname(fd, (struct sockaddr *)&address, &size);
    close(fd);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
    snprintf(listen_flag, sizeof listen_flag, "--listen=127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, train_at, &w), 0);
    sleep_for(0.3); /* no condition to wait for: no daemon listens yet */
    daemon = daemon_start(flags);
    pthread_join(thread, NULL);
    if (w.failure[0] != '\0') fail_msg("%s", w.failure);
    worker_free(&w);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

static void begin_count(worker *w, pd_ticket_id *ticket)
{
    pd_error err;

    for (size_t p = 0; p < 2; p++)
        for (int64_t i = 0; i < sizes[p]; i++) w->gradients[p][i] = 1;
    if (pd_client_push_pull(w->client, w->items, 2, NULL, ticket, &err) != PD_OK) fail_msg("%s", err.text);
}

static void open_two(const test_daemon *daemon, const char *job, const model *m, team *t, worker *w)
{
    *t = (team){ .url = daemon->url, .job = job, .world = 2, .rules = rules, .model = m, .zero = true };
    for (int r = 0; r < 2; r++)
        if (!worker_open(&w[r], t, r)) fail_msg("%s", w[r].failure);
    for (int r = 0; r < 2; r++)
        if (!worker_declare(&w[r])) fail_msg("%s", w[r].failure);
}

TEST(sigterm_lets_the_round_under_way_finish_and_takes_no_new_one)
{
    test_daemon *daemon = daemon_start(NULL);
    model *m = model_new(sizes, 2);
    team t;
    worker w[2];
    pd_ticket_id tickets[2], next;
    pd_error err;

    open_two(daemon, "drain", m, &t, w);
    begin_count(&w[0], &tickets[0]);
    daemon_await_contributions(daemon, "drain", 1);
    kill(daemon->pid, SIGTERM);
    assert_true(daemon_says(daemon, "drain", patient(10)));
    begin_count(&w[1], &tickets[1]);
    for (int r = 0; r < 2; r++) {
        if (pd_client_wait(w[r].client, tickets[r], 0, &err) != PD_OK) fail_msg("rank %d: %s", r, err.text);
        assert_true(worker_counted(&w[r], 1));
    }
    begin_count(&w[0], &next);
    assert_int_equal(pd_client_wait(w[0].client, next, patient(0.5), &err),
                     PD_DEADLINE_EXCEEDED); /* the client keeps the push for the next daemon */
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    for (int r = 0; r < 2; r++) worker_free(&w[r]);
    model_free(m);
}

TEST(sigterm_waits_no_longer_than_the_drain_timeout_for_a_rank_that_does_not_come)
{
    static const char *const flags[] = { "--drain-timeout=500ms", NULL };
    test_daemon *daemon = daemon_start(flags);
    model *m = model_new(sizes, 2);
    team t;
    worker w[2];
    pd_ticket_id ticket;
    double begun;

    open_two(daemon, "stuck", m, &t, w);
    begin_count(&w[0], &ticket);
    daemon_await_contributions(daemon, "stuck", 1);
    begun = seconds_now();
    kill(daemon->pid, SIGTERM);
    assert_true(daemon_says(daemon, "not drained: job stuck: step 1 of ", patient(10)));
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    assert_in_range((int)(1000 * (seconds_now() - begun)), 400, (int)(1000 * patient(10)));
    for (int r = 0; r < 2; r++) worker_free(&w[r]);
    model_free(m);
}

/* The job is not durable, so it is lost with its daemon. A push for step 4 to the new daemon fails with
 * that reason, and does not begin the training anew. */
TEST(a_daemon_that_came_back_empty_refuses_to_go_on)
{
    char listen_flag[64];
    const char *flags[] = { listen_flag, NULL };
    test_daemon *daemon = daemon_start(NULL);
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "gone", .world = 1, .rules = rules, .model = m, .zero = true };
    worker w;
    pd_error err;
    pd_ticket_id ticket;

    if (!worker_open(&w, &t, 0) || !worker_declare(&w) || !three_counts(&w)) fail_msg("%s", w.failure);
    snprintf(listen_flag, sizeof listen_flag, "--listen=127.0.0.1:%d", daemon->port);
    daemon_kill(daemon);
    begin_count(&w, &ticket);
    daemon = daemon_start(flags);
    assert_int_equal(pd_client_wait(w.client, ticket, 0, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "no longer has job gone"));
    assert_non_null(strstr(err.text, "pd_client_restart"));
    worker_free(&w);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* Takes five steps. Every rank pushes in another order, and each may have only one frame in flight. The daemon must
 * always have memory for the lowest rank that a chunk still waits for, or the job would stand still. */
static bool own_orders(worker *w)
{
    size_t order[12];

    for (int i = 1; i <= 5; i++) {
        shuffle(order, 12, (uint64_t)(w->rank * 17 + i));
        if (!worker_step(w, order, NULL)) return false;
    }
    return true;
}

enum { BUDGETS = 3 };

/* Trains the same job with three ingest budgets. Checks that the weights are equal bit for bit. */
static void run_everywhere(const char *aggregate)
{
    static const char *const least[] = { "--chunk-bytes=16KiB", "--ingest-bytes=64KiB", NULL };
    static const char *const large_frames[] = { "--chunk-bytes=16KiB", "--max-payload=64KiB", "--ingest-bytes=256KiB",
                                                NULL };
    static const int64_t many[12] = { 4096, 5000, 4096, 9000, 100, 4096, 20000, 3, 8192, 4097, 64, 12000 };
    const char *const options[] = { aggregate, NULL };
    test_daemon *daemons[BUDGETS] = { daemon_start(least), daemon_start(large_frames), daemon_start(NULL) };
    model *m = model_new(many, 12);
    worker workers[BUDGETS][TEAM_MOST];
    team t[BUDGETS];

    for (int i = 0; i < BUDGETS; i++) {
        t[i] = (team){ .url = daemons[i]->url,
                       .job = "orders",
                       .world = 4,
                       .options = options,
                       .rules = rules,
                       .model = m,
                       .work = own_orders };
        team_run(&t[i], workers[i]);
    }
    for (int i = 0; i < BUDGETS; i++)
        for (int r = 0; r < 4; r++) assert_true(model_same(m, workers[i][r].weights, workers[BUDGETS - 1][0].weights));
    for (int i = 0; i < BUDGETS; i++) {
        team_free(&t[i], workers[i]);
        assert_int_equal(daemon_stop(daemons[i], patient(10)), 0);
    }
    model_free(m);
}

TEST(four_orders_at_the_smallest_ingest_budget_finish_with_the_same_bits)
{
    run_everywhere("aggregate=mean");
    run_everywhere("aggregate=adasum");
    run_everywhere("aggregate=adasum_vdot");
    run_everywhere("aggregate=median");
    run_everywhere("aggregate=trimmed_mean");
}

/* Takes one step. Rank 1 is late by more than the heartbeat timeout. Meanwhile rank 0 has used up its quota of the
 * ingest budget, so the daemon does not read its connection, not even the heartbeats. */
static bool one_is_late(worker *w)
{
    if (w->rank == 1) sleep_for(1.5);
    return worker_count(w) && (worker_counted(w, 1) || worker_fail(w, "not counted", NULL));
}

TEST(a_rank_whose_share_is_used_up_keeps_its_connection)
{
    static const char *const flags[] = { "--chunk-bytes=16KiB", "--ingest-bytes=64KiB", "--heartbeat-interval=200ms",
                                         "--heartbeat-timeout=700ms", NULL };
    static const int64_t large[] = { 1000000 };
    test_daemon *daemon = daemon_start(flags);
    model *m = model_new(large, 1);
    team t = {
        .url = daemon->url, .job = "late", .world = 2, .rules = rules, .model = m, .zero = true, .work = one_is_late
    };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    assert_int_equal(workers[0].stats.connects, 1);
    assert_int_equal(workers[1].stats.connects, 1);
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(many_jobs_at_once_do_not_mix)
{
    enum { JOBS = 24 };
    test_daemon *daemon = daemon_start(NULL);
    model *m = model_new(sizes, 2);
    pthread_t threads[JOBS];
    worker w[JOBS];
    team t[JOBS];
    char names[JOBS][16];

    for (int j = 0; j < JOBS; j++) {
        snprintf(names[j], sizeof names[j], "job-%d", j % 100);
        t[j] = (team){ .url = daemon->url, .job = names[j], .world = 1, .rules = rules, .model = m, .zero = true };
        w[j] = (worker){ .team = &t[j] };
        assert_int_equal(pthread_create(&threads[j], NULL, train_at, &w[j]), 0);
    }
    for (int j = 0; j < JOBS; j++) pthread_join(threads[j], NULL);
    for (int j = 0; j < JOBS; j++)
        if (w[j].failure[0] != '\0') fail_msg("job %d: %s", j, w[j].failure);
    for (int j = 0; j < JOBS; j++) worker_free(&w[j]);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
