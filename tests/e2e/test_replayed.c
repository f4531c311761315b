/* Tests that contributions which workers send again after a crash of the daemon are counted, in the list of jobs and in
 * the metrics. */
#include <jansson.h>

#include "test.h"
#include "daemon_process.h"
#include "http_ask.h"
#include "paramd/client.h"

enum { TENSORS = 3, DURABLE = 4, SEEN = 6 };

static test_daemon *start_at(int port, const char *root)
{
    char listen[64], state[96];
    const char *const flags[] = { listen, state, "--http-listen=127.0.0.1:0", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", port);
    snprintf(state, sizeof state, "--state-dir=%s", root);
    return daemon_start(flags);
}

static void must(int rc, const pd_error *err)
{
    if (rc != PD_OK) fail_msg("%s", err->text);
}

static pd_client *open_worker(const char *url)
{
    static float weights[TENSORS];
    pd_client_options options = {
        .urls = url,
        .job = "again",
        .world_size = 1,
        .rules = (const char *[]){ "* sgd lr=1", NULL },
        .options = (const char *[]){ "durability=checkpoint", "checkpoint_every=4", NULL },
        .deadline = patient(30),
        .window = 8,
        .quiet = true,
    };
    const pd_client_param params[TENSORS] = { { .name = "a", .shape = { 1, { 1 } } },
                                              { .name = "b", .shape = { 1, { 1 } } },
                                              { .name = "c", .shape = { 1, { 1 } } } };
    pd_client *client;
    pd_error err;

    must(pd_client_open(&client, &options, &err), &err);
    must(pd_client_declare(client, params, TENSORS, &err), &err);
    must(pd_client_init(client, (void *[]){ &weights[0], &weights[1], &weights[2] }, &err), &err);
    return client;
}

static void step(pd_client *client)
{
    static float gradient = 1, weights[TENSORS];
    pd_item items[TENSORS];
    pd_ticket_id ticket;
    pd_error err;

    for (size_t i = 0; i < TENSORS; i++)
        items[i] = (pd_item){ .param = i, .gradient = &gradient, .weights = &weights[i] };
    must(pd_client_push_pull(client, items, TENSORS, NULL, &ticket, &err), &err);
    must(pd_client_wait(client, ticket, 0, &err), &err);
}

/* Returns `replayed` of the one job in the list of jobs. */
static json_int_t replayed(const test_daemon *daemon)
{
    char line[1024];
    FILE *pipe;
    json_t *list;
    json_int_t count = -1;

    snprintf(line, sizeof line, "PARAMD_URL=%s %s/paramctl jobs --json", daemon->url, getenv("PARAMD_BIN"));
    assert_non_null(pipe = popen(line, "r"));
    list = json_loadf(pipe, 0, NULL);
    pclose(pipe);
    json_unpack(list, "{s:[{s:I}]}", "jobs", "replayed", &count);
    json_decref(list);
    return count;
}

typedef struct wanted {
    int port;
    char line[128];
} wanted;

/* Returns whether the metrics have a line. They are as old as a second. */
static bool is_in_metrics(void *arg)
{
    const wanted *w = arg;

    return http_answers(w->port, "GET /metrics HTTP/1.0\r\n\r\n", w->line);
}

TEST(contributions_that_are_sent_again_are_counted)
{
    char root[] = "/tmp/paramd-replayed-XXXXXX", command[64];
    wanted w;
    test_daemon *daemon;
    pd_client *client;
    pd_error err;
    int port;

    assert_non_null(mkdtemp(root));
    daemon = start_at(0, root);
    port = daemon->port;
    client = open_worker(daemon->url);
    for (int i = 0; i < DURABLE; i++) step(client);
    must(pd_client_sync(client, 0, &err), &err);
    for (int i = DURABLE; i < SEEN; i++) step(client);
    assert_int_equal(replayed(daemon), 0);
    daemon_kill(daemon);
    daemon = start_at(port, root);
    step(client); /* sends what was lost, and then its own step */
    assert_int_equal(replayed(daemon), (SEEN - DURABLE) * TENSORS);
    w.port = daemon_port_of(daemon, "listening for HTTP on 127.0.0.1:");
    snprintf(w.line, sizeof w.line, "\nparamd_replayed_contributions_total{job=\"again\"} %d\n",
             (SEEN - DURABLE) * TENSORS);
    assert_true(await(is_in_metrics, &w, patient(10)));
    pd_client_close(client);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}
