/* Tests that tokens and certificates are replaced while workers train: no worker sees an error. */
#include <stdatomic.h>
#include <pthread.h>
#include <signal.h>

#include "test.h"
#include "http_ask.h"
#include "proxy.h"
#include "team.h"
#include "tls_scene.h"

enum { ROTATIONS = 20 };
static const int64_t sizes[] = { 2500, 10 };
static const char *const rules[] = { "* sgd lr=1", NULL };
static atomic_int steps, finished;

/* Steps until the rotations are over. Both ranks stop at the same step, which rank 0 chooses two steps ahead. */
static atomic_int last;

static bool train(worker *w)
{
    for (int step = 1; last == 0 || step <= last; step++) {
        if (!worker_count(w)) return false;
        if (!worker_counted(w, step)) return worker_fail(w, "a contribution was counted twice, or not at all", NULL);
        if (w->rank == 0) steps = step;
        if (w->rank == 0 && finished != 0 && last == 0) last = step + 2;
    }
    return true;
}

static void *live(void *arg)
{
    worker *w = arg;

    if (worker_open(w, w->team, w->rank) && worker_declare(w) && train(w)) worker_leave(w);
    return NULL;
}

static bool has_stepped(void *arg)
{
    return steps >= *(const int *)arg;
}

/* Waits until the workers have taken three more steps: their earlier connections are gone, and they go on. */
static void await_steps(void)
{
    int wanted = steps + 3;

    assert_true(await(has_stepped, &wanted, patient(20)));
}

typedef struct rotation {
    tls_scene *scene;
    proxy *between;
    int reloads;
} rotation;

static void reload(rotation *r)
{
    tls_scene_reload(r->scene, ++r->reloads);
}

/* Replaces the token, the server's certificate and the client's, in the order that leaves no gap. */
static void rotate(rotation *r)
{
    tls_scene *scene = r->scene;
    char fresh[PD_TOKEN_LINE];

    assert_int_equal(pd_token_new(fresh, "alice", NULL), PD_OK);
    pki_write_tokens(scene->tokens, scene->line, fresh);
    pki_issue(scene->authority, "IP:127.0.0.1", 2, scene->server_pem, scene->server_key);
    reload(r);
    pki_write_tokens(scene->token, fresh, NULL);
    pki_issue(scene->authority, "DNS:worker-1", 2, scene->client_pem, scene->client_key);
    proxy_cut_now(r->between);
    await_steps();
    pki_write_tokens(scene->tokens, fresh, NULL);
    reload(r);
    strcpy(scene->line, fresh);
}

TEST(keys_are_rotated_while_workers_train)
{
    rotation r = { .scene = tls_scene_new() };
    model *m = model_new(sizes, 2);
    team t[2];
    worker w[2];
    pthread_t thread[2];
    char url[64];

    tls_scene_start(r.scene, NULL);
    r.between = proxy_start(r.scene->port);
    snprintf(url, sizeof url, "tls://127.0.0.1:%d", proxy_port(r.between));
    t[0] = (team){ .url = url, .job = "rotated", .world = 2, .rules = rules, .model = m, .zero = true };
    t[1] = t[0];
    t[0].token_file = r.scene->token;
    t[1].ca_file = r.scene->ca;
    t[1].cert_file = r.scene->client_pem;
    t[1].key_file = r.scene->client_key;
    for (int i = 0; i < 2; i++) {
        w[i] = (worker){ .team = &t[i], .rank = i };
        assert_int_equal(pthread_create(&thread[i], NULL, live, &w[i]), 0);
    }
    await_steps();
    for (int i = 0; i < ROTATIONS; i++) rotate(&r);
    finished = 1;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        if (w[i].failure[0] != '\0') fail_msg("rank %d: %s", i, w[i].failure);
        assert_true(w[i].stats.connects > 1);
        worker_free(&w[i]);
    }
    print_message("rotation_errors: 0 in %d rotations and %d steps; connections of the ranks: %d\n", ROTATIONS, steps,
                  proxy_connections(r.between));
    proxy_stop(r.between);
    model_free(m);
    assert_int_equal(tls_scene_end(r.scene), 0);
}

TEST(a_reload_with_a_wrong_file_changes_nothing)
{
    tls_scene *scene = tls_scene_new();
    pd_client_options options = { .job = "", .impatient = true, .token_file = scene->token };
    pd_client *client = NULL;

    tls_scene_start(scene, NULL);
    pki_write(scene->tokens, scene->line, 0644);
    daemon_reload(scene->daemon, "the old values stay in use: tls.tokens: others can read or change");
    options.urls = scene->url;
    assert_int_equal(pd_client_open(&client, &options, NULL), PD_OK);
    pd_client_close(client);
    assert_int_equal(tls_scene_end(scene), 0);
}

/* Returns whether the daemon lets the client with the certificate in. */
static bool lets_in(const tls_scene *scene)
{
    pd_client_options options = { .urls = scene->url,
                                  .job = "",
                                  .impatient = true,
                                  .ca_file = scene->ca,
                                  .cert_file = scene->client_pem,
                                  .key_file = scene->client_key };
    pd_client *client = NULL;
    int rc;

    options.deadline = patient(10);
    rc = pd_client_open(&client, &options, NULL);
    if (rc == PD_OK) pd_client_close(client);
    return rc == PD_OK;
}

TEST(a_revoked_certificate_is_refused_from_the_reload_on)
{
    tls_scene *scene = tls_scene_new();
    char list[96];

    snprintf(list, sizeof list, "%s/crl.pem", scene->folder);
    pki_revoke(scene->authority, NULL, 2, list);
    tls_scene_start(scene, (const char *const[]){ "--tls-crl", list, NULL });
    assert_true(lets_in(scene));
    pki_revoke(scene->authority, scene->client_pem, 2, list);
    tls_scene_reload(scene, 1);
    assert_false(lets_in(scene));
    assert_true(daemon_says(scene->daemon, "certificate revoked", patient(10)));
    pki_issue(scene->authority, "DNS:worker-1", 2, scene->client_pem, scene->client_key);
    assert_true(lets_in(scene)); /* a new one is not in the list */
    pki_write(list, "nonsense\n", 0600);
    daemon_reload(scene->daemon, "the old values stay in use: tls.crl: ");
    assert_true(lets_in(scene));
    pki_revoke(scene->authority, NULL, -1, list);
    tls_scene_reload(scene, 2);
    assert_false(lets_in(scene));
    assert_true(daemon_says(scene->daemon, "CRL has expired", patient(10)));
    assert_int_equal(tls_scene_end(scene), 0);
}

/* Asks for metrics with a token. Returns whether the answer has the text `expected`. */
static bool asks(int port, const char *token, const char *expected)
{
    char request[128];

    snprintf(request, sizeof request, "GET /metrics HTTP/1.0\r\nAuthorization: Bearer %s\r\n\r\n", token);
    return http_answers(port, request, expected);
}

TEST(the_token_of_http_is_replaced_with_all_other_files_or_not_at_all)
{
    tls_scene *scene = tls_scene_new();
    char file[96];
    int port;

    snprintf(file, sizeof file, "%s/http-token", scene->folder);
    pki_write(file, "first-token-of-http\n", 0600);
    tls_scene_start(scene, (const char *const[]){ "--http-listen=127.0.0.1:0", "--http-token", file, NULL });
    port = daemon_port_of(scene->daemon, "listening for HTTP on 127.0.0.1:");
    assert_true(asks(port, "first-token-of-http", "200 OK"));
    pki_write(file, "second-token-of-http\n", 0600);
    tls_scene_reload(scene, 1);
    assert_true(asks(port, "first-token-of-http", "401 Unauthorized"));
    assert_true(asks(port, "second-token-of-http", "200 OK"));
    pki_write(file, "third-token-of-http\n", 0600);
    pki_write(scene->tokens, "nonsense\n", 0600);
    daemon_reload(scene->daemon, "the old values stay");
    assert_true(asks(port, "second-token-of-http", "200 OK"));
    assert_int_equal(tls_scene_end(scene), 0);
}
