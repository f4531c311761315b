/* Tests HTTP connections of the loop thread: what each path answers, and that peers that are slow, many or strangers
 * harm nobody. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test.h"
#include "conn.h"
#include "http.h"
#include "loop.h"
#include "document.h"
#include "engine_model.h"
#include "reach.h"
#include "scene.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"

static char heard[1 << 20]; /* the last answer, with its head */

/* Connects from an address. */
static int connect_from(scene *s, uint64_t origin)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    assert_int_equal(pd_daemon_adopt_http(s->daemon, pair[1], origin), PD_OK);
    return pair[0];
}

static int connect_http(scene *s)
{
    return connect_from(s, 1);
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Runs the loop until the daemon has ended its side, and keeps what it has sent. */
static const char *hear(scene *s, int fd)
{
    size_t n = 0;
    ssize_t got;

    for (int turns = 0; turns < 2000; turns++) {
        scene_turn(s);
        got = recv(fd, heard + n, sizeof heard - 1 - n, 0);
        if (got > 0) n += (size_t)got;
        if (got == 0) break;
    }
    heard[n] = '\0';
    close(fd);
    scene_turn(s);
    return heard;
}

static const char *ask(scene *s, const char *request)
{
    int fd = connect_http(s);

    say(fd, request);
    return hear(s, fd);
}

static void expect(scene *s, const char *request, const char *first_line, const char *part)
{
    const char *answer = ask(s, request);

    if (strncmp(answer, first_line, strlen(first_line)) != 0 || strstr(answer, part) == NULL)
        fail_msg("%s answers:\n%.2000s", request, answer);
}

/* Returns the body of the last answer, with its chunks put together. */
static const char *body(void)
{
    static char text[sizeof heard];
    char *at = strstr(heard, "\r\n\r\n") + 4;
    size_t n = 0, size;

    assert_non_null(strstr(heard, "Transfer-Encoding: chunked\r\n"));
    while ((size = strtoul(at, &at, 16)) > 0) {
        memcpy(text + n, at + 2, size);
        n += size;
        at += 2 + size + 2;
    }
    assert_string_equal(at, "\r\n\r\n");
    text[n] = '\0';
    return text;
}

/* Lets a worker of job "j" take a step, and its figures be published. */
static void take_step(scene *s)
{
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    for (uint32_t i = 0; i < 2; i++) scene_data(s, fd, PD_PUSH, i, 1);
    scene_settle(s);
    scene_sleep(s, 1.1);
}

/* Gives the daemon a fixed key. With a random one, two of a test's addresses would now and then share counters. */
static scene *new_scene(void)
{
    scene *s = scene_new(16, NULL);

    s->daemon->key = 1;
    return s;
}

OBJECT(new_scene(), scene_free);

TEST(each_path_has_its_answer, scene *s)
{
    expect(s, GET("/healthz"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n");
    expect(s, GET("/readyz"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nready\n");
    expect(s, GET("/metrics"), "HTTP/1.1 200 OK\r\n", "text/plain; version=0.0.4");
    expect(s, GET("/jobs.json"), "HTTP/1.1 200 OK\r\n", "\"jobs\":[]}");
    expect(s, GET("/"), "HTTP/1.1 200 OK\r\n", "<html");
    expect(s, GET("/nothing"), "HTTP/1.1 404 Not Found\r\n", "expected one of /metrics");
    expect(s, "PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\n", "Allow: GET, HEAD");
    expect(s, "hello\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "expected a first line such as");
    expect(s, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 413 Content Too Large\r\n",
           "without a body");
    assert_int_equal(s->daemon->http.n, 0);
}

TEST(a_request_that_comes_byte_by_byte_is_answered, scene *s)
{
    const char *request = GET("/healthz");
    int fd = connect_http(s);

    for (size_t i = 0; i < strlen(request); i++) {
        assert_int_equal(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
        scene_turn(s);
    }
    assert_non_null(strstr(hear(s, fd), "\r\n\r\nok\n"));
}

TEST(head_gets_the_head_alone, scene *s)
{
    const char *answer = ask(s, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");

    assert_non_null(strstr(answer, "200 OK"));
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

TEST(a_peer_of_http_1_0_gets_no_chunks, scene *s)
{
    const char *answer = ask(s, "GET /metrics HTTP/1.0\r\n\r\n");

    assert_null(strstr(answer, "chunked"));
    assert_non_null(strstr(answer, "\r\n\r\n# HELP paramd_build_info"));
}

TEST(jobs_json_has_the_figures_that_were_published, scene *s)
{
    json_t *root, *job;

    take_step(s);
    ask(s, GET("/jobs.json"));
    assert_non_null(root = json_loads(body(), 0, NULL));
    job = json_array_get(json_object_get(root, "jobs"), 0);
    assert_string_equal(json_string_value(json_object_get(job, "name")), "j");
    assert_int_equal(json_integer_value(json_object_get(job, "step_least")), 1);
    assert_int_equal(json_integer_value(json_object_get(job, "workers_connected")), 1);
    assert_int_equal(json_array_size(json_object_get(job, "workers")), 1);
    assert_int_equal(json_array_size(json_object_get(json_object_get(job, "history"), "step")), 1);
    assert_null(json_object_get(json_array_get(json_object_get(job, "workers"), 0), "nonce"));
    json_decref(root);
}

TEST(figures_are_published_once_a_second_and_only_if_the_job_has_changed, scene *s)
{
    const pd_job_stats *first;

    take_step(s);
    first = s->daemon->figures.first->stats;
    assert_int_equal(first->info.step_least, 1);
    scene_sleep(s, 10);
    assert_ptr_equal(s->daemon->figures.first->stats, first);
    scene_join(s, 0, 1, 2); /* the rank's new process, within a second of the last copy: none is due yet */
    assert_true(pd_store_next_tick(s->store) <= s->now + PD_STATS_NS);
    scene_sleep(s, 1.1);
    assert_int_equal(s->daemon->figures.first->stats->at_ns, s->now);
}

TEST(a_job_that_has_ended_has_no_figures, scene *s)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 });

    take_step(s);
    drop->u.info.job_name = strdup("j");
    pd_store_apply(s->store, drop, s->now);
    scene_settle(s);
    assert_null(s->daemon->figures.first);
}

static bool is_down(void *arg)
{
    (void)arg;
    return false;
}

TEST(a_daemon_without_a_mirror_has_no_metric_of_one, scene *s)
{
    take_step(s);
    ask(s, GET("/metrics"));
    assert_null(strstr(body(), "\nparamd_mirror"));
    s->daemon->config.hooks.mirror_is_up = is_down;
    ask(s, GET("/metrics"));
    assert_non_null(strstr(body(), "\nparamd_mirror_up 0\n"));
    assert_non_null(strstr(body(), "\nparamd_mirror_lag_steps{job=\"j\"} 0\n"));
}

TEST(every_metric_of_the_table_has_samples, scene *s)
{
    char text[160];
    const char *name, *all;

    s->daemon->config.hooks.mirror_is_up = is_down;
    take_step(s);
    ask(s, GET("/metrics"));
    all = body();
    for (size_t i = 0; (name = pd_metrics_name(i)) != NULL; i++) {
        if (strcmp(name, "checkpoint_last_success_timestamp_seconds") == 0 || strcmp(name, "scalar") == 0 ||
            strcmp(name, "job_shard_info") == 0 || strncmp(name, "cluster_", 8) == 0 || strncmp(name, "mirror", 6) == 0)
            continue; /* the job has none; the daemon has neither engine nor mirror */
        snprintf(text, sizeof text, "\nparamd_%s", name);
        if (strstr(all, text) == NULL) fail_msg("no sample of %s", name);
    }
    assert_non_null(strstr(all, "\nparamd_job_step{job=\"j\"} 1\n"));
    assert_non_null(strstr(all, "\nparamd_rounds_closed_total{job=\"j\",outcome=\"stepped\"} 2\n"));
}

static void ignore_line(void *arg, int level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

/* Makes a cluster whose daemon owns shard 1 of 2, of an engine that has no other key. */
static pd_cluster *owner(engine_model *model, model_client *client)
{
    const pd_cluster_config config = { .name = "c",
                                       .shard = 1,
                                       .shards = 2,
                                       .process = "m",
                                       .url = "tcp://a:1",
                                       .http = "http://a:2",
                                       .ttl_ms = 8000,
                                       .process_number = 5,
                                       .log = ignore_line };
    pd_cluster *cluster;

    model_init(model);
    model_client_init(client, model);
    assert_int_equal(pd_cluster_new(&cluster, &client->base, &config, NULL), PD_OK);
    for (uint64_t now = 100; pd_cluster_place(cluster) != PD_PLACE_OWNER && now < 2000; now += 100) {
        pd_cluster_turn(cluster, now);
        if (pd_cluster_place(cluster) == PD_PLACE_CHOSEN)
            assert_int_equal(pd_cluster_claim(cluster, "tcp://a:1", 7, NULL), PD_OK);
    }
    return cluster;
}

TEST(a_daemon_of_a_cluster_tells_its_tenure_its_lease_and_the_table, scene *s)
{
    engine_model *model = calloc(1, sizeof *model);
    model_client client;
    pd_cluster *cluster;
    json_t *root, *told;

    assert_non_null(model);
    cluster = owner(model, &client);
    s->daemon->cluster = cluster;
    ask(s, GET("/metrics"));
    assert_non_null(strstr(body(), "\nparamd_cluster_lease_remaining_seconds 7.9\n"));
    assert_non_null(strstr(body(), "\nparamd_cluster_tenure 3\n"));
    assert_non_null(strstr(body(), "\nparamd_cluster_engine_up 1\n"));
    ask(s, GET("/jobs.json"));
    assert_non_null(root = json_loads(body(), 0, NULL));
    told = json_object_get(json_object_get(root, "server"), "cluster");
    assert_string_equal(json_string_value(json_object_get(told, "name")), "c");
    assert_int_equal(json_integer_value(json_object_get(told, "shard")), 1);
    assert_int_equal(json_array_size(json_object_get(told, "shards")), 2);
    json_decref(root);
    s->daemon->cluster = NULL;
    ask(s, GET("/metrics"));
    assert_null(strstr(body(), "\nparamd_cluster_tenure"));
    pd_cluster_free(cluster);
    free(model);
}

TEST(a_job_on_several_daemons_says_which_shard_this_one_is, scene *s)
{
    s->shard = 1;
    s->shards = 2;
    scene_join(s, 0, 1, 3);
    scene_sleep(s, 1.1);
    ask(s, GET("/metrics"));
    assert_non_null(strstr(body(), "\nparamd_job_shard_info{job=\"j\",shard=\"1\",shards=\"2\","
                                   "cluster=\"0000000000000007\",map=\""));
    ask(s, GET("/jobs.json"));
    assert_non_null(strstr(body(), "\"shard\":1,\"shards\":2,\"cluster\":7,"));
}

TEST(a_rank_has_metrics_once_it_has_come, scene *s)
{
    json_t *root, *workers;

    scene_join(s, 2, 4, 1);
    scene_sleep(s, 1.1);
    ask(s, GET("/metrics"));
    assert_non_null(strstr(body(), "\nparamd_straggler_total{job=\"j\",rank=\"2\"} 0\n"));
    assert_null(strstr(body(), "rank=\"0\""));
    assert_null(strstr(body(), "rank=\"3\""));
    assert_non_null(strstr(body(), "\nparamd_job_workers{job=\"j\",state=\"absent\"} 3\n"));
    assert_non_null(strstr(body(), "\nparamd_ranks_left_out 0\n"));
    ask(s, GET("/jobs.json"));
    assert_non_null(root = json_loads(body(), 0, NULL));
    workers = json_object_get(json_array_get(json_object_get(root, "jobs"), 0), "workers");
    assert_int_equal(json_array_size(workers), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(workers, 0), "rank")), 2);
    json_decref(root);
}

static size_t hold_a_kibibyte(const pd_transport *transport)
{
    (void)transport;
    return 1024;
}

TEST(the_memory_of_connections_is_a_metric, scene *s)
{
    static pd_transport_ops ops;
    pd_transport *transport;

    take_step(s);
    transport = s->daemon->table.at[0]->transport;
    ops = *transport->ops;
    ops.held = hold_a_kibibyte;
    transport->ops = &ops;
    ask(s, GET("/metrics"));
    assert_non_null(strstr(body(), "\nparamd_memory_tls_bytes 1024\n"));
}

TEST(names_from_peers_are_escaped)
{
    pd_document out = { 0 };

    pd_document_label(&out, "a\"b\\c\nx\ty\xff");
    assert_string_equal(out.at, "\"a\\\"b\\\\c\\nx?y?\"");
    pd_document_clear(&out);
    pd_document_json_text(&out, "a\"b\\c\nx\xff");
    assert_string_equal(out.at, "\"a\\\"b\\\\c\\u000ax?\"");
    pd_document_free(&out);
}

TEST(with_a_token_only_health_is_told_without_it, scene *s)
{
    s->daemon->config.http_token = "0123456789abcdef";
    expect(s, GET("/metrics"), "HTTP/1.1 401 Unauthorized\r\n", "WWW-Authenticate: Basic");
    expect(s, GET("/nothing"), "HTTP/1.1 401 Unauthorized\r\n", "http.token");
    expect(s, GET("/readyz"), "HTTP/1.1 200 OK\r\n", "ready");
    expect(s, "GET /metrics HTTP/1.1\r\nHost: x.example\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
           "HTTP/1.1 200 OK\r\n", "paramd_ready");
    expect(s, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdeX\r\n\r\n",
           "HTTP/1.1 401 Unauthorized\r\n", "expected the token");
}

TEST(without_a_token_a_strange_host_name_is_refused, scene *s)
{
    expect(s, "GET /jobs.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421 Misdirected Request\r\n",
           "http.token");
    expect(s, "GET /healthz HTTP/1.1\r\nHost: paramd\r\n\r\n", "HTTP/1.1 200 OK\r\n", "ok");
}

TEST(a_daemon_that_drains_is_not_ready, scene *s)
{
    s->daemon->shutdown.drains = true;
    expect(s, GET("/readyz"), "HTTP/1.1 503 Service Unavailable\r\n", "draining");
}

static uint64_t stuck(void *arg)
{
    (void)arg;
    return PD_STUCK_NS;
}

TEST(a_stuck_step_thread_is_not_healthy, scene *s)
{
    s->daemon->config.hooks.busy_ns = stuck;
    expect(s, GET("/healthz"), "HTTP/1.1 503 Service Unavailable\r\n", "stuck for 60 s");
}

/* Opens the most connections from one address, whose requests are not complete. */
static void open_slow(scene *s, int fds[PD_HTTP_MOST], uint64_t origin)
{
    for (int i = 0; i < PD_HTTP_MOST; i++) {
        fds[i] = connect_from(s, origin);
        say(fds[i], "GET /healthz HTTP/1.1\r\n");
        scene_turn(s);
    }
}

static void close_all(scene *s, const int *fds, int n)
{
    for (int i = 0; i < n; i++) close(fds[i]);
    scene_turn(s);
    assert_int_equal(s->daemon->http.n, 0);
}

TEST(a_newcomer_takes_the_place_of_the_oldest_incomplete_request, scene *s)
{
    int fds[PD_HTTP_MOST];

    open_slow(s, fds, 1);
    expect(s, GET("/healthz"), "HTTP/1.1 200 OK\r\n", "ok");
    assert_non_null(strstr(hear(s, fds[0]), "HTTP/1.1 429 Too Many Requests\r\n"));
    assert_non_null(strstr(heard, "Retry-After: 1\r\n"));
    say(fds[1], "Host: localhost\r\n\r\n");
    assert_non_null(strstr(hear(s, fds[1]), "200 OK"));
    close_all(s, fds + 2, PD_HTTP_MOST - 2);
}

TEST(a_flood_from_one_address_takes_no_place_of_another, scene *s)
{
    int first = connect_from(s, 2), fds[PD_HTTP_MOST];

    say(first, "GET /healthz HTTP/1.1\r\n");
    open_slow(s, fds, 1);
    assert_int_equal(s->daemon->http.n, PD_HTTP_MOST);
    say(first, "Host: localhost\r\n\r\n");
    assert_non_null(strstr(hear(s, first), "200 OK"));
    close_all(s, fds, PD_HTTP_MOST);
}

TEST(a_request_that_is_complete_is_answered_rather_than_dropped, scene *s)
{
    int fds[PD_HTTP_MOST], late;

    open_slow(s, fds, 1);
    say(fds[0], "Host: localhost\r\n\r\n"); /* the loop has not read it when the next one comes */
    late = connect_from(s, 1);
    assert_non_null(strstr(hear(s, fds[0]), "200 OK"));
    close(late);
    close_all(s, fds + 1, PD_HTTP_MOST - 1);
}

TEST(connections_that_are_answered_make_room_first, scene *s)
{
    int slow = connect_http(s), fds[PD_HTTP_MOST];

    say(slow, "GET /healthz HTTP/1.1\r\n");
    for (int i = 0; i < PD_HTTP_MOST; i++) {
        fds[i] = connect_http(s);
        say(fds[i], GET("/healthz"));
        scene_turn(s);
    }
    assert_int_equal(s->daemon->http.n, PD_HTTP_MOST);
    say(slow, "Host: localhost\r\n\r\n");
    assert_non_null(strstr(hear(s, slow), "200 OK"));
    assert_non_null(strstr(hear(s, fds[0]), "200 OK"));
    close_all(s, fds + 1, PD_HTTP_MOST - 1);
}

/* Asks for metrics from an address, and reads nothing. The socket takes less than the answer. */
static int scrape_slowly(scene *s, uint64_t origin)
{
    int small = 1, pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    assert_int_equal(pd_daemon_adopt_http(s->daemon, pair[1], origin), PD_OK);
    say(pair[0], GET("/metrics"));
    scene_turn(s);
    return pair[0];
}

TEST(long_answers_are_limited_for_each_address, scene *s)
{
    int fds[PD_HTTP_LONG_SHARE];

    take_step(s);
    for (int i = 0; i < PD_HTTP_LONG_SHARE; i++) fds[i] = scrape_slowly(s, 1);
    assert_int_equal(s->daemon->http.n_long, PD_HTTP_LONG_SHARE);
    expect(s, GET("/metrics"), "HTTP/1.1 429 Too Many Requests\r\n", "Retry-After: 1\r\n");
    expect(s, GET("/healthz"), "HTTP/1.1 200 OK\r\n", "ok");
    close(scrape_slowly(s, 2));
    assert_int_equal(s->daemon->http.n_long, PD_HTTP_LONG_SHARE + 1);
    close_all(s, fds, PD_HTTP_LONG_SHARE);
    assert_int_equal(s->daemon->http.n_long, 0);
    expect(s, GET("/metrics"), "HTTP/1.1 200 OK\r\n", "paramd_ready 1");
}

TEST(long_answers_of_all_addresses_are_limited, scene *s)
{
    int fds[PD_HTTP_LONG];

    take_step(s);
    for (int i = 0; i < PD_HTTP_LONG; i++) fds[i] = scrape_slowly(s, (uint64_t)(i / PD_HTTP_LONG_SHARE));
    assert_int_equal(s->daemon->http.n_long, PD_HTTP_LONG);
    say(fds[0], "x"); /* more than a request is not read, and harms nobody */
    assert_non_null(strstr(hear(s, scrape_slowly(s, 99)), "429 Too Many Requests"));
    expect(s, GET("/healthz"), "HTTP/1.1 200 OK\r\n", "ok");
    close_all(s, fds, PD_HTTP_LONG);
}

TEST(all_who_read_long_answers_get_their_pieces_in_turn, scene *s)
{
    int fds[PD_HTTP_LONG_SHARE];

    take_step(s);
    for (int i = 0; i < PD_HTTP_LONG_SHARE; i++) fds[i] = scrape_slowly(s, 1);
    for (int i = PD_HTTP_LONG_SHARE; i-- > 0;) {
        hear(s, fds[i]);
        assert_non_null(strstr(body(), "\nparamd_repeated_steps_total{job=\"j\"} 0\n"));
    }
    assert_int_equal(s->daemon->http.n, 0);
}

TEST(a_peer_is_told_apart_by_its_address_and_in_ipv6_by_its_network)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    uint64_t origin;

    inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr);
    origin = pd_reach_origin((const struct sockaddr *)&v4);
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr);
    assert_int_equal(pd_reach_origin((const struct sockaddr *)&v6), origin);
    inet_pton(AF_INET, "10.1.2.4", &v4.sin_addr);
    assert_int_not_equal(pd_reach_origin((const struct sockaddr *)&v4), origin);
    inet_pton(AF_INET6, "2001:db8:0:7::1", &v6.sin6_addr);
    origin = pd_reach_origin((const struct sockaddr *)&v6);
    inet_pton(AF_INET6, "2001:db8:0:7:1:2:3:4", &v6.sin6_addr);
    assert_int_equal(pd_reach_origin((const struct sockaddr *)&v6), origin);
    inet_pton(AF_INET6, "2001:db8:0:8::1", &v6.sin6_addr);
    assert_int_not_equal(pd_reach_origin((const struct sockaddr *)&v6), origin);
    assert_int_equal(pd_reach_origin((const struct sockaddr *)&local), 0);
}

TEST(a_peer_that_sends_no_request_is_told_so_and_closed, scene *s)
{
    int fd = connect_http(s);

    say(fd, "GET /met");
    scene_turn(s);
    pd_http_tick(s->daemon, pd_loop_now_ms(s->daemon) + PD_HTTP_MS + 1);
    assert_non_null(strstr(hear(s, fd), "408 Request Timeout"));
}

TEST(a_peer_that_reads_nothing_is_closed_and_keeps_one_piece, scene *s)
{
    int fd = connect_http(s), small = 1;

    take_step(s);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    say(fd, GET("/metrics"));
    scene_turn(s);
    pd_http_tick(s->daemon, pd_loop_now_ms(s->daemon) + PD_HTTP_WHOLE_MS + 1);
    scene_turn(s);
    assert_int_equal(s->daemon->http.n, 0);
    close(fd);
}
