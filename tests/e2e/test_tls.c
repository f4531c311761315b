/* Tests tls:// with the real daemon: training, refusals that name their reason on both sides, and what a stranger on
 * the wire sees. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>

#include "test.h"
#include "http_ask.h"
#include "proxy.h"
#include "team.h"
#include "tls_scene.h"

enum { STEPS = 5, HALF_OPEN = 300 };
static const int64_t sizes[] = { 300000, 10, 600 };
static const char *const rules[] = { "* sgd lr=0.1 momentum=0.9", NULL };

static int start(void **state)
{
    static const char *const flags[] = { "--handshake-timeout=2s", NULL };

    signal(SIGPIPE, SIG_IGN);
    *state = tls_scene_new();
    tls_scene_start(*state, flags);
    return 0;
}

static int end(void **state)
{
    return tls_scene_end(*state);
}

static bool train(worker *w)
{
    for (int step = 0; step < STEPS; step++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

static void run_team(team *t, model *m, worker workers[TEAM_MOST])
{
    t->world = 2;
    t->rules = rules;
    t->model = m;
    t->work = train;
    team_run(t, workers);
}

/* Trains over TLS and over plain TCP, and compares the weights bit for bit. */
static void expect_the_bits_of_tcp(const tls_scene *scene, team secure)
{
    team plain = { .url = scene->daemon->url };
    char name[64];
    worker of_secure[TEAM_MOST], of_plain[TEAM_MOST];
    model *m = model_new(sizes, 3);

    snprintf(name, sizeof name, "plain-%s", secure.job);
    plain.job = name;
    run_team(&secure, m, of_secure);
    run_team(&plain, m, of_plain);
    assert_true(model_same(m, of_secure[1].weights, of_plain[0].weights));
    team_free(&secure, of_secure);
    team_free(&plain, of_plain);
    model_free(m);
}

HOLDS_FOR(const tls_scene *scene, workers_with_a_token_train_as_over_tcp,
          expect_the_bits_of_tcp(scene, (team){ .url = scene->url, .job = "token", .token_file = scene->token }));

HOLDS_FOR(const tls_scene *scene, workers_with_a_certificate_train_as_over_tcp,
          expect_the_bits_of_tcp(scene, (team){ .url = scene->url,
                                                .job = "certificate",
                                                .ca_file = scene->ca,
                                                .cert_file = scene->client_pem,
                                                .key_file = scene->client_key }));

/* Connects as a client that gives up at once. Fails the test unless both sides tell the reason. */
static void expect_refusal(const tls_scene *scene, pd_client_options options, const char *to_client, const char *in_log)
{
    pd_client *client = NULL;
    pd_error err = { 0 };
    int rc;

    options.job = "";
    options.impatient = true;
    options.deadline = patient(10);
    if (options.urls == NULL) options.urls = scene->url;
    rc = pd_client_open(&client, &options, &err);
    assert_true(rc == PD_UNAVAILABLE || rc == PD_UNAUTHENTICATED);
    if (strstr(err.text, to_client) == NULL) fail_msg("expected \"%s\", got \"%s\"", to_client, err.text);
    assert_true(daemon_says(scene->daemon, in_log, patient(5)));
}

TEST(a_wrong_token_is_refused, const tls_scene *scene)
{
    char path[120], line[PD_TOKEN_LINE];

    snprintf(path, sizeof path, "%s/wrong", scene->folder);
    assert_int_equal(pd_token_new(line, "alice", NULL), PD_OK);
    pki_write_tokens(path, line, NULL);
    expect_refusal(scene, (pd_client_options){ .token_file = path }, "the peer refused the token",
                   "the client's token is not in tls.tokens");
}

HOLDS_FOR(const tls_scene *scene, a_client_without_credentials_is_refused,
          expect_refusal(scene, (pd_client_options){ .ca_file = scene->ca },
                         "set PARAMD_TOKEN_FILE, or PARAMD_CERT_FILE", "the client has neither token nor certificate"));

TEST(a_server_of_a_foreign_authority_is_refused, const tls_scene *scene)
{
    char path[120];
    pki_authority *foreign;

    snprintf(path, sizeof path, "%s/foreign", scene->folder);
    foreign = pki_new("foreign", path);
    pki_free(foreign);
    expect_refusal(scene, (pd_client_options){ .ca_file = path }, "the peer's certificate is not trusted",
                   "unknown authority");
}

TEST(a_server_of_another_name_is_refused, const tls_scene *scene)
{
    char url[64];

    snprintf(url, sizeof url, "tls://localhost:%d", scene->port); /* the certificate has only the number */
    expect_refusal(scene, (pd_client_options){ .urls = url, .ca_file = scene->ca }, "hostname mismatch",
                   "refused our certificate");
}

TEST(an_expired_client_is_refused, const tls_scene *scene)
{
    pki_issue(scene->authority, "DNS:worker-1", -1, scene->client_pem, scene->client_key);
    expect_refusal(
        scene,
        (pd_client_options){ .ca_file = scene->ca, .cert_file = scene->client_pem, .key_file = scene->client_key },
        "it has expired", "certificate has expired");
}

TEST(a_client_without_tls_is_told_to_use_it, const tls_scene *scene)
{
    char url[64];

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", scene->port);
    expect_refusal(scene, (pd_client_options){ .urls = url }, "TLS required", "the client does not use TLS");
}

TEST(a_client_with_tls_is_told_that_an_address_has_none, const tls_scene *scene)
{
    char url[64];

    snprintf(url, sizeof url, "tls://127.0.0.1:%d", scene->daemon->port);
    expect_refusal(scene, (pd_client_options){ .urls = url, .token_file = scene->token }, "the peer does not use TLS",
                   "this address does not use TLS");
}

TEST(a_file_that_is_of_no_use_is_told_at_once, const tls_scene *scene)
{
    pd_client_options options = { .urls = scene->url, .token_file = "/nowhere/token" };
    pd_client *client = NULL;
    pd_error err = { 0 };

    assert_int_equal(pd_client_open(&client, &options, &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "PARAMD_TOKEN_FILE: /nowhere/token"));
}

TEST(older_versions_of_tls_are_refused, const tls_scene *scene)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    int fd = loopback_connect(scene->port);

    SSL_set_max_proto_version(ssl, TLS1_2_VERSION);
    SSL_set_fd(ssl, fd);
    assert_true(SSL_connect(ssl) <= 0);
    assert_int_equal(ERR_GET_REASON(ERR_peek_error()), SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    assert_true(daemon_says(scene->daemon, "the peer does not support TLS 1.3", patient(5)));
}

TEST(a_daemon_without_keys_does_not_start)
{
    static const char *const flags[] = { "--listen=tls://127.0.0.1:0", NULL };
    char text[1024];

    assert_int_equal(daemon_refuses(flags, text, sizeof text), 2);
    assert_non_null(strstr(text, "needs tls.tokens, or tls.certificate and tls.key"));
}

TEST(other_machines_may_reach_only_what_knows_its_clients, const tls_scene *scene)
{
    const char *flags[] = { "--check-config",
                            "--listen=tls://0.0.0.0:7070",
                            "--tls-certificate",
                            scene->server_pem,
                            "--tls-key",
                            scene->server_key,
                            NULL,
                            NULL,
                            NULL };
    char text[1024];

    assert_int_equal(daemon_refuses(flags, text, sizeof text), 2);
    assert_non_null(strstr(text, "refusing to listen on 0.0.0.0:7070"));
    flags[6] = "--tls-tokens";
    flags[7] = scene->tokens;
    assert_int_equal(daemon_refuses(flags, text, sizeof text), 0);
}

/* Trains through a proxy that records. Returns whether it has seen a name of the job or a part of the weights. */
static bool can_be_read(const tls_scene *scene, bool secure)
{
    static const char *const names[] = { "a-job-of-my-own", "sgd", "p1" };
    proxy *between = proxy_start(secure ? scene->port : scene->daemon->port);
    model *m = model_new(sizes, 3);
    team t = { .job = names[0], .token_file = scene->token };
    worker workers[TEAM_MOST];
    char url[64];
    bool seen = false;

    proxy_record(between);
    snprintf(url, sizeof url, "%s://127.0.0.1:%d", secure ? "tls" : "tcp", proxy_port(between));
    t.url = url;
    run_team(&t, m, workers);
    seen |= proxy_recorded(between, names[0], strlen(names[0]));
    seen |= proxy_recorded(between, "momentum=0.9", strlen("momentum=0.9"));
    for (int64_t i = 0; i + 4 <= 600; i += 4) seen |= proxy_recorded(between, workers[0].weights[2] + i, 16);
    team_free(&t, workers);
    model_free(m);
    proxy_stop(between);
    return seen;
}

TEST(neither_names_nor_numbers_can_be_read_on_the_wire, const tls_scene *scene)
{
    assert_true(can_be_read(scene, false));
    assert_false(can_be_read(scene, true));
}

/* Returns the daemon's resident memory in KiB. */
static long resident(const tls_scene *scene)
{
    char path[64], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)scene->daemon->pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
    fclose(file);
    return kib;
}

static bool is_closed(void *arg)
{
    char byte;

    return recv(*(const int *)arg, &byte, 1, MSG_DONTWAIT) == 0;
}

static bool answers(const tls_scene *scene)
{
    pd_client_options options = { .urls = scene->url, .job = "", .impatient = true, .token_file = scene->token };
    pd_client *client = NULL;
    int rc = pd_client_open(&client, &options, NULL);

    pd_client_close(client);
    return rc == PD_OK;
}

TEST(silent_and_slow_handshakes_cost_little_and_end, const tls_scene *scene)
{
    static const uint8_t begun[] = { 22, 3, 1, 2, 0, 1, 0 }; /* a message of 512 bytes, of which two are here */
    int fd[HALF_OPEN];
    long before = resident(scene), after;

    for (int i = 0; i < HALF_OPEN; i++) {
        fd[i] = loopback_connect(scene->port);
        if (i % 2 == 0) assert_int_equal(send(fd[i], begun, sizeof begun, 0), sizeof begun);
    }
    assert_true(answers(scene));
    after = resident(scene);
    if ((after - before) / HALF_OPEN > 8 && patient(1) == 1) fail_msg("%ld KiB for %d", after - before, HALF_OPEN);
    for (int i = 0; i < HALF_OPEN; i++) {
        assert_true(await(is_closed, &fd[i], patient(10)));
        close(fd[i]);
    }
}

GROUP(start, end);
