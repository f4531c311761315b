/* Tests a daemon with movers: large payloads over TCP and TLS, with peers that stop or die and a daemon that ends while
 * movers receive and send. */
#include <pthread.h>
#include <signal.h>

#include "test.h"
#include "http_ask.h"
#include "proxy.h"
#include "team.h"
#include "tls_scene.h"

WITH_THREADS();

enum { STEPS = 4, WORLD = 2, LARGE = 1500000, CUTS = 5 };
static const int64_t sizes[] = { LARGE, 7, LARGE };
static const char *const rules[] = { "* sgd lr=0.1 momentum=0.9", NULL };

typedef struct scene {
    tls_scene *tls;
    int http;
    double moved; /* bytes that movers had received when the test looked last */
    proxy *link;
    char far[64]; /* address of the proxy */
    model *model;
} scene;

static void start(scene *s, const char *movers)
{
    const char *flags[] = { movers,
                            "--http-listen=127.0.0.1:0",
                            "--chunk-bytes=2MiB",
                            "--read-timeout=1s",
                            "--write-timeout=1s",
                            "--heartbeat-interval=500ms",
                            "--heartbeat-timeout=2s",
                            NULL };

    signal(SIGPIPE, SIG_IGN);
    s->tls = tls_scene_new();
    tls_scene_start(s->tls, flags);
    s->http = daemon_port_of(s->tls->daemon, "listening for HTTP on 127.0.0.1:");
}

static void set_up(scene *s)
{
    start(s, "--movers=2");
    s->model = model_new(sizes, 3);
}

static void tear_down(scene *s)
{
    model_free(s->model);
    if (s->link != NULL) proxy_stop(s->link);
    assert_int_equal(tls_scene_end(s->tls), 0);
}

FIXTURE(scene, set_up, tear_down);

/* Returns the value of a metric of the daemon. */
static double metric(const scene *s, const char *name)
{
    char line[64];
    const char *at;

    snprintf(line, sizeof line, "\n%s ", name);
    at = strstr(http_answer(s->http, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), line);
    assert_non_null(at);
    return strtod(at + strlen(line), NULL);
}

static bool train(worker *w)
{
    for (int step = 0; step < STEPS; step++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

/* Trains a job on a daemon without movers, and returns its weights in *workers. */
static void train_without(const scene *s, team t, worker workers[TEAM_MOST])
{
    scene other = { 0 };

    start(&other, "--movers=0");
    t.url = other.tls->daemon->url;
    t.token_file = NULL;
    t.model = s->model;
    team_run(&t, workers);
    assert_true(metric(&other, "paramd_mover_jobs_total") == 0);
    assert_int_equal(tls_scene_end(other.tls), 0);
}

static team team_of(const scene *s, const char *url, bool (*work)(worker *w), void *arg)
{
    return (team){ .url = url,
                   .job = "job",
                   .world = WORLD,
                   .rules = rules,
                   .model = s->model,
                   .token_file = strncmp(url, "tls", 3) == 0 ? s->tls->token : NULL,
                   .deadline = patient(30),
                   .work = work,
                   .arg = arg };
}

/* Trains a job, and compares its weights with those of a daemon without movers. */
static void expect_same_bits(const scene *s, const char *url)
{
    worker moved[TEAM_MOST], unmoved[TEAM_MOST];
    team t = team_of(s, url, train, NULL);

    team_run(&t, moved);
    train_without(s, t, unmoved);
    for (int rank = 0; rank < WORLD; rank++)
        assert_true(model_same(s->model, moved[rank].weights, unmoved[rank].weights));
    team_free(&t, moved);
    team_free(&t, unmoved);
}

static void expect_movers_at_work(const scene *s)
{
    assert_true(metric(s, "paramd_mover_bytes_received_total") > LARGE);
    assert_true(metric(s, "paramd_mover_bytes_sent_total") > LARGE);
    assert_true(metric(s, "paramd_bytes_received_total") > metric(s, "paramd_mover_bytes_received_total"));
    assert_true(metric(s, "paramd_connections_lent") == 0);
}

TEST(payloads_that_movers_move_over_tcp_have_the_same_bits, scene *s)
{
    expect_same_bits(s, s->tls->daemon->url);
    expect_movers_at_work(s);
}

TEST(payloads_that_movers_move_over_tls_have_the_same_bits, scene *s)
{
    expect_same_bits(s, s->tls->url);
    expect_movers_at_work(s);
}

/* Returns whether movers have received at least half of a large payload since the test looked last. */
static bool has_moved(void *arg)
{
    scene *s = arg;
    double now = metric(s, "paramd_mover_bytes_received_total");

    if (now < s->moved + 2.0 * LARGE) return false;
    s->moved = now;
    return true;
}

static void *train_in_thread(void *arg)
{
    const team *t = arg;
    worker workers[TEAM_MOST];

    team_run(t, workers);
    team_free(t, workers);
    return NULL;
}

static void connect_by_proxy(scene *s, bool secure)
{
    s->link = proxy_start(secure ? s->tls->port : s->tls->daemon->port);
    snprintf(s->far, sizeof s->far, "%s://127.0.0.1:%d", secure ? "tls" : "tcp", proxy_port(s->link));
}

static bool train_long(worker *w)
{
    for (int step = 0; step < 3 * STEPS; step++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

/* Lets a job train while `trouble` happens to its connections. */
static void train_through(scene *s, void (*trouble)(scene *s))
{
    team t = team_of(s, s->far, train_long, NULL);
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, train_in_thread, &t), 0);
    trouble(s);
    pthread_join(thread, NULL);
}

static void cut_connections(scene *s)
{
    for (int i = 0; i < CUTS; i++) {
        assert_true(await(has_moved, s, patient(20)));
        proxy_cut_now(s->link);
    }
}

TEST(peers_that_die_while_a_mover_has_them_come_back, scene *s)
{
    connect_by_proxy(s, false);
    train_through(s, cut_connections);
}

TEST(peers_with_tls_that_die_while_a_mover_has_them_come_back, scene *s)
{
    connect_by_proxy(s, true);
    train_through(s, cut_connections);
}

static void stall_link(scene *s)
{
    assert_true(await(has_moved, s, patient(20)));
    proxy_stall(s->link, true);
    assert_true(daemon_says(s->tls->daemon, "connection ended", patient(10)) ||
                daemon_says(s->tls->daemon, "connection closed", patient(1)));
    proxy_stall(s->link, false);
}

TEST(a_peer_that_stops_in_the_middle_of_a_payload_is_cut, scene *s)
{
    connect_by_proxy(s, false);
    train_through(s, stall_link);
}

/* A worker that trains until the daemon has ended. */
static void *train_to_the_end(void *arg)
{
    worker *w = arg;

    while (worker_step(w, NULL, NULL)) continue;
    return NULL;
}

static void end_while_they_train(scene *s, const char *url)
{
    team t = team_of(s, url, NULL, NULL);
    worker workers[WORLD];
    pthread_t threads[WORLD];

    t.deadline = patient(3);
    for (int rank = 0; rank < WORLD; rank++)
        if (!worker_open(&workers[rank], &t, rank)) fail_msg("%s", workers[rank].failure);
    for (int rank = 0; rank < WORLD; rank++)
        if (!worker_declare(&workers[rank])) fail_msg("%s", workers[rank].failure);
    for (int rank = 0; rank < WORLD; rank++) pthread_create(&threads[rank], NULL, train_to_the_end, &workers[rank]);
    assert_true(await(has_moved, s, patient(20)));
    assert_int_equal(daemon_stop(s->tls->daemon, patient(20)), 0);
    s->tls->daemon = NULL;
    for (int rank = 0; rank < WORLD; rank++) {
        pthread_join(threads[rank], NULL);
        worker_free(&workers[rank]);
    }
}

HOLDS_FOR(scene *s, a_daemon_that_is_told_to_stop_while_movers_work_ends_well,
          end_while_they_train(s, s->tls->daemon->url));
HOLDS_FOR(scene *s, a_daemon_that_is_told_to_stop_while_movers_have_tls_streams_ends_well,
          end_while_they_train(s, s->tls->url));
