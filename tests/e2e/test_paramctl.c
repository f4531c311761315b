/* Tests paramctl with a real daemon: its output and its exit status. */
#include <sys/wait.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

/* Opens a worker of a job of one rank, with an initialised parameter `w` of two elements. */
static pd_client *join_with(const char *job, const char *const *settings)
{
    static const char *const rules[] = { "* sgd lr=0.5 momentum=0.9", NULL };
    pd_client_options options = { .urls = paramctl_server.url,
                                  .job = job,
                                  .world_size = 1,
                                  .rules = rules,
                                  .options = settings,
                                  .label = "tester",
                                  .deadline = 20 };
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 2 } } };
    float at[2] = { 1, 2 };
    void *weights[] = { at };
    pd_client *client;
    pd_error err = { 0 };

    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, &param, 1, &err) != PD_OK ||
        pd_client_init(client, weights, &err) != PD_OK) {
        fail_msg("%s", err.text);
    }
    return client;
}

static pd_client *join_as_worker(const char *job)
{
    return join_with(job, NULL);
}

static void leave(pd_client *client)
{
    pd_client_leave(client, NULL);
    pd_client_close(client);
}

static int push_once(pd_client *client)
{
    static const float gradient[2] = { 1, 1 };
    float weights[2];
    pd_item item = { .gradient = gradient, .weights = weights };
    pd_ticket_id ticket;
    int rc = pd_client_push_pull(client, &item, 1, NULL, &ticket, NULL);

    return rc == PD_OK ? pd_client_wait(client, ticket, 20, NULL) : rc;
}

TEST(ping_is_answered)
{
    assert_int_equal(paramctl("ping"), 0);
    assert_says("paramd");
}

TEST(a_quiet_ping_prints_nothing)
{
    assert_int_equal(paramctl("ping --quiet"), 0);
    assert_string_equal(paramctl_output, "");
    assert_int_equal(paramctl("ping --quiet --server tcp://127.0.0.1:1 --timeout 0.3"), 3);
    assert_string_equal(paramctl_output, "");
}

TEST(status_tells_memory_and_loop)
{
    json_t *answer;

    assert_int_equal(paramctl("status"), 0);
    assert_says("resident");
    assert_int_equal(paramctl("status --json"), 0);
    answer = parsed();
    assert_true(json_integer_value(json_object_get(answer, "peak_resident_bytes")) > 1 << 20);
    assert_int_equal(json_array_size(json_object_get(answer, "loop_busy_ms")), 4);
    assert_true(json_is_array(json_object_get(answer, "jobs")));
    json_decref(answer);
}

static void assert_shows(const char *command, const char *text)
{
    assert_int_equal(paramctl("%s", command), 0);
    assert_says(text);
}

/* Runs a command with JSON output, and checks one value of the first parameter in its list. */
static void assert_param(const char *command, const char *key, const char *expected)
{
    json_t *answer;
    char *text;

    assert_int_equal(paramctl("%s", command), 0);
    answer = parsed();
    text = json_dumps(json_object_get(json_array_get(json_object_get(answer, "params"), 0), key), JSON_ENCODE_ANY);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(answer);
}

TEST(a_job_shows_its_parameters_and_workers)
{
    pd_client *client = join_as_worker("shown");

    assert_int_equal(push_once(client), PD_OK);
    assert_shows("jobs", "shown");
    assert_shows("workers shown", "tester");
    assert_says("connected");
    assert_shows("params shown", "(2,)");
    assert_param("params shown --json", "name", "\"w\"");
    assert_param("params shown --json", "step", "1");
    assert_param("params shown --json", "contributions", "1");
    leave(client);
}

/* Some aggregates, such as the median, need all contributions at once. For these, paramctl shows how many bytes of
 * contributions the daemon may store: 8 for two elements of one rank. */
TEST(parameters_show_their_aggregate_and_what_it_holds)
{
    static const char *const mean[] = { "aggregate=sum", NULL }, *const median[] = { "aggregate=median", NULL };
    pd_client *summing = join_with("summing", mean), *collecting = join_with("collecting", median);

    assert_int_equal(push_once(collecting), PD_OK);
    assert_shows("params summing -o wide", "AGGREGATE");
    assert_says("sum ");
    assert_shows("params collecting -o wide", "median (holds 8 B)");
    assert_param("params collecting --json", "aggregate", "\"median\"");
    assert_param("params collecting --json", "collect_bytes", "8");
    leave(summing);
    leave(collecting);
}

enum { SIDE = 96, MATRICES = 2, ROOTS = 2 * (SIDE / 8) * (SIDE / 8) };

/* Opens a worker of a job of one rank with two matrices of 144 blocks each, whose roots take several pages, and a
 * vector. Takes `steps` steps. */
static pd_client *train_with_roots(const char *job, int steps)
{
    static const char *const rules[] = {
        "b sgd", "* scalable_shampoo block_size=8 learning_rate=0.1 root_method=eigh preconditioning_compute_steps=2",
        NULL
    };
    static float at[MATRICES + 1][SIDE * SIDE], gradients[MATRICES + 1][SIDE * SIDE];
    pd_client_options options = {
        .urls = paramctl_server.url, .job = job, .world_size = 1, .rules = rules, .label = "tester", .deadline = 20
    };
    pd_shape square = { .rank = 2, .dim = { SIDE, SIDE } };
    pd_client_param params[] = { { .name = "layer/0", .shape = square },
                                 { .name = "layer/1", .shape = square },
                                 { .name = "b", .shape = { 1, { 3 } } } };
    void *weights[] = { at[0], at[1], at[2] };
    pd_item items[] = { { .param = 0, .gradient = gradients[0], .weights = at[0] },
                        { .param = 1, .gradient = gradients[1], .weights = at[1] },
                        { .param = 2, .gradient = gradients[2], .weights = at[2] } };
    pd_client *client;
    pd_error err = { 0 };

    for (int p = 0; p < MATRICES; p++)
        for (int i = 0; i < SIDE * SIDE; i++) gradients[p][i] = sinf((float)(i * i % 1009 + p));
    if (pd_client_open(&client, &options, &err) != PD_OK ||
        pd_client_declare(client, params, MATRICES + 1, &err) != PD_OK ||
        pd_client_init(client, weights, &err) != PD_OK) {
        fail_msg("%s", err.text);
    }
    for (int s = 0; s < steps; s++) {
        pd_ticket_id ticket;
        if (pd_client_push_pull(client, items, MATRICES + 1, NULL, &ticket, &err) != PD_OK ||
            pd_client_wait(client, ticket, 20, &err) != PD_OK)
            fail_msg("%s", err.text);
    }
    return client;
}

/* The initial weights are the mean of both ranks' weights. Rank 1 has not come, so the job waits for it. */
TEST(who_is_missed_by_initial_weights_is_named)
{
    static const char *const settings[] = { "initial_weights=mean", NULL };
    pd_client_options options = {
        .urls = paramctl_server.url, .job = "early", .world_size = 2, .options = settings, .deadline = 20, .slice = 1
    };
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 2 } } };
    float at[2] = { 1, 2 };
    void *weights[] = { at };
    pd_client *client;
    int rc;

    assert_int_equal(pd_client_open(&client, &options, NULL), PD_OK);
    while ((rc = pd_client_declare(client, &param, 1, NULL)) == PD_DEADLINE_EXCEEDED) continue;
    assert_int_equal(rc, PD_OK);
    assert_int_equal(pd_client_init(client, weights, NULL), PD_DEADLINE_EXCEEDED);
    assert_int_equal(paramctl("params early"), 0);
    assert_says("initial weights of 1\n");
    pd_client_close(client);
    assert_int_equal(paramctl("drop early"), 0);
}

TEST(roots_are_listed_with_error_age_and_cost)
{
    pd_client *client = train_with_roots("rooted", 6);
    json_t *answer, *list, *root;

    assert_int_equal(paramctl("roots rooted --json"), 0);
    answer = parsed();
    list = json_object_get(answer, "roots");
    assert_int_equal(json_array_size(list), MATRICES * ROOTS); /* two roots for each block */
    root = json_array_get(list, ROOTS + 1);
    assert_string_equal(json_string_value(json_object_get(root, "param")), "layer/1");
    assert_string_equal(json_string_value(json_object_get(root, "root")), "preconditioners.1");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(root, "shape"), 0)), 8);
    assert_int_equal(json_integer_value(json_object_get(root, "adopted")), 3); /* adoptions in steps 1, 3, 5 */
    assert_int_equal(json_integer_value(json_object_get(root, "failed")), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "age")), 1);
    assert_true(json_real_value(json_object_get(root, "ms")) > 0);
    assert_true(json_real_value(json_object_get(root, "kept_error")) > 0 &&
                json_real_value(json_object_get(root, "kept_error")) < 0.1);
    json_decref(answer);
    assert_int_equal(paramctl("roots rooted '*/0'"), 0);
    assert_says("preconditioners.287");
    assert_says("(8, 8)");
    assert_null(strstr(paramctl_output, "layer/1"));
    assert_int_equal(paramctl("roots rooted b"), 0);
    assert_says("no roots");
    leave(client);
}

TEST(parameters_show_the_errors_that_are_kept_of_their_roots)
{
    pd_client *client = train_with_roots("errors", 3);
    json_t *answer, *param, *errors;

    assert_int_equal(paramctl("params errors --json"), 0);
    answer = parsed();
    param = json_array_get(json_object_get(answer, "params"), 1);
    errors = json_object_get(param, "inverse_pth_root_errors");
    assert_int_equal(json_integer_value(json_object_get(param, "roots")), ROOTS);
    assert_int_equal(json_array_size(errors), ROOTS);
    for (size_t i = 0; i < ROOTS; i++)
        assert_true(json_real_value(json_array_get(errors, i)) <=
                    json_real_value(json_object_get(param, "root_error")));
    assert_true(json_real_value(json_object_get(param, "root_error")) > 0);
    assert_null(json_object_get(json_array_get(json_object_get(answer, "params"), 2), "inverse_pth_root_errors"));
    json_decref(answer);
    assert_int_equal(paramctl("params errors"), 0);
    assert_says("STATE");
    assert_null(strstr(paramctl_output, "inverse_pth_root_errors"));
    assert_int_equal(paramctl("params errors --verbose"), 0);
    assert_says("layer/1: inverse_pth_root_errors ");
    assert_int_equal(paramctl("jobs -o wide"), 0);
    assert_says("1152/1152");
    leave(client);
}

TEST(a_dropped_job_is_gone_and_its_worker_hears_of_it)
{
    pd_client *client = join_as_worker("dropped");

    assert_int_equal(paramctl("drop dropped"), 0);
    assert_int_equal(paramctl("params dropped"), 1);
    assert_int_not_equal(push_once(client), PD_OK);
    pd_client_close(client);
}

TEST(a_drained_daemon_says_so)
{
    assert_int_equal(paramctl("drain --within 5"), 0);
    assert_int_equal(paramctl("status"), 0);
    assert_says("draining");
}

TEST(shutdown_ends_the_daemon_with_status_0)
{
    int status;

    assert_int_equal(paramctl("shutdown"), 0);
    assert_int_equal(waitpid(paramctl_server.pid, &status, 0), paramctl_server.pid);
    paramctl_server.pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

GROUP(paramctl_start_server, paramctl_stop_server);
