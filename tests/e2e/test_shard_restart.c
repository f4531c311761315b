/* Tests that a shard which has more portions than the workers have declared parameters starts again. */
#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"

enum { DAEMONS = 2, ROWS = 1024, COLUMNS = 512 };

static struct {
    char folder[64], urls[200];
    test_daemon *daemon[DAEMONS];
} cluster;

static void start_daemons(void)
{
    for (size_t i = 0; i < DAEMONS; i++) {
        char state[128];
        const char *const flags[] = { state, NULL };
        snprintf(state, sizeof state, "--state-dir=%s/%zu", cluster.folder, i);
        cluster.daemon[i] = daemon_start(flags);
    }
    snprintf(cluster.urls, sizeof cluster.urls, "%s %s", cluster.daemon[0]->url, cluster.daemon[1]->url);
}

/* Opens a job of one matrix, which is cut into eight portions, and expects it at a step. */
static pd_client *begin(uint64_t step, float *weights)
{
    static const char *const rules[] = { "* sgd lr=0.1", NULL };
    static const char *const options[] = { "split_bytes=64KiB", "nonfinite_scope=job", "durability=checkpoint", NULL };
    const pd_client_options open = {
        .urls = cluster.urls, .job = "m", .world_size = 1, .rules = rules, .options = options, .deadline = patient(20)
    };
    const pd_client_param param = { .name = "m", .shape = { 2, { ROWS, COLUMNS } } };
    char failure[600] = "";
    pd_error err = { 0 };
    pd_client *client = rank_begin(failure, sizeof failure, &open, &param, 1, &weights, &err);

    if (client == NULL) fail_msg("%s", failure);
    assert_int_equal(pd_client_step(client, 0), step);
    return client;
}

TEST(a_shard_with_more_portions_than_parameters_starts_again)
{
    float *weights = calloc((size_t)ROWS * COLUMNS, sizeof *weights);
    pd_item item = { .param = 0, .gradient = weights, .weights = weights };
    pd_client *client;
    pd_ticket_id ticket;
    pd_error err = { 0 };

    strcpy(cluster.folder, "/tmp/paramd-restart-XXXXXX");
    assert_non_null(mkdtemp(cluster.folder));
    start_daemons();
    weights[0] = 1;
    client = begin(0, weights);
    assert_int_equal(pd_client_push_pull(client, &item, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(client, ticket, 0, &err), PD_OK);
    pd_client_close(client);
    assert_int_equal(paramctl("-s '%s' shutdown", cluster.urls), 0);
    for (size_t i = 0; i < DAEMONS; i++) daemon_end(cluster.daemon[i]);
    start_daemons();
    client = begin(1, weights);
    assert_true(weights[0] == 0.9f);
    assert_int_equal(pd_client_leave(client, &err), PD_OK);
    pd_client_close(client);
    assert_int_equal(daemons_stop(cluster.daemon, DAEMONS, cluster.folder), 0);
    free(weights);
}
