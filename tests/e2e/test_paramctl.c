/* paramctl against a real daemon: what it prints, and its exit status. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "child.h"
#include "golden.h"
#include "paramd/client.h"
#include "tracefile.h"

static pd_child server;
static char output[256 * 1024];         /* of the last command: both streams, with --json stdout only */

/* Runs `paramctl ARGUMENTS` with the test's daemon in the environment; gives its exit status. */
static int paramctl(const char *format, ...)
{
    char arguments[1024], line[2048];
    const char *bin = getenv("PARAMD_BIN");
    va_list args;
    FILE *pipe;

    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(line, sizeof line, "PARAMD_URL=%s %s/paramctl %s%s", server.url, bin, arguments, strstr(arguments, "--json") != NULL ? " 2>/dev/null" : " 2>&1");
    assert_non_null(pipe = popen(line, "r"));
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_says(const char *part)
{
    if (strstr(output, part) == NULL) fail_msg("does not say \"%s\":\n%s", part, output);
}

/* The last command's output as JSON; the caller decrefs. */
static json_t *parsed(void)
{
    json_error_t why;
    json_t *value = json_loads(output, 0, &why);

    if (value == NULL) fail_msg("%s in:\n%s", why.text, output);
    return value;
}

/* A worker of a job of one, with a parameter `w` of two elements, initialised. */
static pd_client *join_with(const char *job, const char *const *settings)
{
    static const char *const rules[] = { "* sgd lr=0.5 momentum=0.9", NULL };
    pd_client_options options = { .urls = server.url, .job = job, .world_size = 1, .rules = rules, .options = settings, .label = "tester", .deadline = 20 };
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

static pd_client *join_as_worker(const char *job) { return join_with(job, NULL); }

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

/* ---- questions ---- */

static void ping_is_answered(void **state)
{
    (void)state;
    assert_int_equal(paramctl("ping"), 0);
    assert_says("paramd");
}

static void a_quiet_ping_prints_nothing(void **state)
{
    (void)state;
    assert_int_equal(paramctl("ping --quiet"), 0);
    assert_string_equal(output, "");
    assert_int_equal(paramctl("ping --quiet --server tcp://127.0.0.1:1 --timeout 0.3"), 3);
    assert_string_equal(output, "");
}

static void exit_status_is_3_where_nobody_listens(void **state)
{
    static const char *const commands[] = { "ping", "status", "jobs", "params x", "workers x", "roots x", "optimizers", "drop x", "drain", "shutdown", "set x y lr=1", "settings x",
                                            "replay x", "bench net" };
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(paramctl("--server tcp://127.0.0.1:1 --timeout 0.2 %s", commands[i]), 3);
        assert_says("127.0.0.1:1");
    }
}

static void exit_status_is_2_for_what_cannot_be_meant(void **state)
{
    static const char *const lines[] = { "", "nonsense", "ping --loud", "params", "roots", "roots a b c", "drop", "replay", "ping extra", "status --timeout never",
                                         "bench disk", "bench net --rounds 2", "plan", "plan a b", "replay --state x", "set", "set x", "set x y", "set x y lr", "set x y =1", "set x y lr=1 --from soon", "settings",
                                         "settings x y z" };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (paramctl("%s", lines[i]) != 2) fail_msg("paramctl %s:\n%s", lines[i], output);
    }
}

static void exit_status_is_1_when_the_server_says_no(void **state)
{
    static const char *const lines[] = { "params no_such_job", "workers no_such_job", "roots no_such_job", "drop no_such_job", "optimizers no_such_row", "set no_such_job x lr=1",
                                         "settings no_such_job" };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(paramctl("%s", lines[i]), 1);
        assert_says("no_such");
        assert_int_equal(paramctl("%s --json", lines[i]), 1);
        json_t *answer = parsed();
        assert_string_equal(json_string_value(json_object_get(json_object_get(answer, "error"), "code")), "NOT_FOUND");
        json_decref(answer);
    }
}

static void every_command_has_help(void **state)
{
    static const char *const commands[] = { "ping", "status", "jobs", "params", "workers", "roots", "optimizers", "drop", "drain", "shutdown", "replay", "bench", "plan",
                                            "set", "settings" };

    (void)state;
    assert_int_equal(paramctl("--version"), 0);
    assert_int_equal(paramctl("--help"), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) assert_says(commands[i]);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(paramctl("%s --help", commands[i]), 0);
        assert_says("--server");
    }
}

static void status_tells_memory_and_loop(void **state)
{
    json_t *answer;

    (void)state;
    assert_int_equal(paramctl("status"), 0);
    assert_says("resident");
    assert_int_equal(paramctl("status --json"), 0);
    answer = parsed();
    assert_true(json_integer_value(json_object_get(answer, "peak_resident_bytes")) > 1 << 20);
    assert_int_equal(json_array_size(json_object_get(answer, "loop_busy_ms")), 4);
    assert_true(json_is_array(json_object_get(answer, "jobs")));
    json_decref(answer);
}

static void optimizers_show_their_hyperparameters(void **state)
{
    json_t *answer;

    (void)state;
    assert_int_equal(paramctl("optimizers"), 0);
    assert_says("sgd");
    assert_int_equal(paramctl("optimizers --json"), 0);
    answer = parsed();
    assert_true(json_array_size(json_object_get(answer, "optimizers")) >= 1);
    json_decref(answer);
    assert_int_equal(paramctl("optimizers sgd"), 0);
    assert_says("momentum");
    assert_says("nesterov");
    assert_int_equal(paramctl("optimizers sgd --json"), 0);
    answer = parsed();
    assert_string_equal(json_string_value(json_object_get(answer, "name")), "sgd");
    assert_true(json_array_size(json_object_get(answer, "hypers")) >= 6);
    json_decref(answer);
}

/* ---- jobs ---- */

static void assert_shows(const char *command, const char *text)
{
    assert_int_equal(paramctl(command), 0);
    assert_says(text);
}

/* What a command prints of the first parameter in its list, as JSON. */
static void assert_param(const char *command, const char *key, const char *expected)
{
    json_t *answer;
    char *text;

    assert_int_equal(paramctl(command), 0);
    answer = parsed();
    text = json_dumps(json_object_get(json_array_get(json_object_get(answer, "params"), 0), key), JSON_ENCODE_ANY);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(answer);
}

static void a_job_shows_its_parameters_and_workers(void **state)
{
    pd_client *client = join_as_worker("shown");

    (void)state;
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

/* Aggregates that need all contributions at once say how much they may hold; two elements of one rank are 8 bytes. */
static void parameters_show_their_aggregate_and_what_it_holds(void **state)
{
    static const char *const mean[] = { "aggregate=sum", NULL }, *const median[] = { "aggregate=median", NULL };
    pd_client *summing = join_with("summing", mean), *gathering = join_with("gathering", median);

    (void)state;
    assert_int_equal(push_once(gathering), PD_OK);
    assert_shows("params summing", "AGGREGATE");
    assert_says("sum ");
    assert_shows("params gathering", "median (holds 8 B)");
    assert_param("params gathering --json", "aggregate", "\"median\"");
    assert_param("params gathering --json", "gather_bytes", "8");
    leave(summing);
    leave(gathering);
}

/* ---- roots ---- */

enum { SIDE = 96, MATRICES = 2, ROOTS = 2 * (SIDE / 8) * (SIDE / 8) };

/* A worker of a job of one, with two matrices in 144 blocks each, whose roots take several pages, and a vector; takes `steps` steps. */
static pd_client *train_with_roots(const char *job, int steps)
{
    static const char *const rules[] = { "b sgd", "* scalable_shampoo block_size=8 learning_rate=0.1 root_method=eigh preconditioning_compute_steps=2", NULL };
    static float at[MATRICES + 1][SIDE * SIDE], gradients[MATRICES + 1][SIDE * SIDE];
    pd_client_options options = { .urls = server.url, .job = job, .world_size = 1, .rules = rules, .label = "tester", .deadline = 20 };
    pd_shape square = { .rank = 2, .dim = { SIDE, SIDE } };
    pd_client_param params[] = { { .name = "layer/0", .shape = square }, { .name = "layer/1", .shape = square }, { .name = "b", .shape = { 1, { 3 } } } };
    void *weights[] = { at[0], at[1], at[2] };
    pd_item items[] = { { .param = 0, .gradient = gradients[0], .weights = at[0] }, { .param = 1, .gradient = gradients[1], .weights = at[1] },
                        { .param = 2, .gradient = gradients[2], .weights = at[2] } };
    pd_client *client;
    pd_error err = { 0 };

    for (int p = 0; p < MATRICES; p++)
        for (int i = 0; i < SIDE * SIDE; i++) gradients[p][i] = sinf((float)(i * i % 1009 + p));
    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, params, MATRICES + 1, &err) != PD_OK ||
        pd_client_init(client, weights, &err) != PD_OK) {
        fail_msg("%s", err.text);
    }
    for (int s = 0; s < steps; s++) {
        pd_ticket_id ticket;
        if (pd_client_push_pull(client, items, MATRICES + 1, NULL, &ticket, &err) != PD_OK || pd_client_wait(client, ticket, 20, &err) != PD_OK)
            fail_msg("%s", err.text);
    }
    return client;
}

/* Their mean is waited for: rank 1 has not come. */
static void who_is_missed_by_initial_weights_is_named(void **state)
{
    static const char *const settings[] = { "initial_weights=mean", NULL };
    pd_client_options options = { .urls = server.url, .job = "early", .world_size = 2, .options = settings, .deadline = 1 };
    pd_client_param param = { .name = "w", .shape = { .rank = 1, .dim = { 2 } } };
    float at[2] = { 1, 2 };
    void *weights[] = { at };
    pd_client *client;
    (void)state;
    assert_int_equal(pd_client_open(&client, &options, NULL), PD_OK);
    assert_int_equal(pd_client_declare(client, &param, 1, NULL), PD_OK);
    assert_int_equal(pd_client_init(client, weights, NULL), PD_DEADLINE_EXCEEDED);
    assert_int_equal(paramctl("params early"), 0);
    assert_says("initial weights of 1\n");
    pd_client_close(client);
    assert_int_equal(paramctl("drop early"), 0);
}

static void roots_are_listed_with_error_age_and_cost(void **state)
{
    pd_client *client = train_with_roots("rooted", 6);
    json_t *answer, *list, *root;

    (void)state;
    assert_int_equal(paramctl("roots rooted --json"), 0);
    answer = parsed();
    list = json_object_get(answer, "roots");
    assert_int_equal(json_array_size(list), MATRICES * ROOTS);                  /* two sides of each block */
    root = json_array_get(list, ROOTS + 1);
    assert_string_equal(json_string_value(json_object_get(root, "param")), "layer/1");
    assert_string_equal(json_string_value(json_object_get(root, "root")), "preconditioners.1");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(root, "shape"), 0)), 8);
    assert_int_equal(json_integer_value(json_object_get(root, "adopted")), 3);  /* in steps 1, 3 and 5 */
    assert_int_equal(json_integer_value(json_object_get(root, "failed")), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "age")), 1);
    assert_true(json_real_value(json_object_get(root, "ms")) > 0);
    assert_true(json_real_value(json_object_get(root, "kept_error")) > 0 && json_real_value(json_object_get(root, "kept_error")) < 0.1);
    json_decref(answer);
    assert_int_equal(paramctl("roots rooted '*/0'"), 0);
    assert_says("preconditioners.287");
    assert_says("(8, 8)");
    assert_null(strstr(output, "layer/1"));
    assert_int_equal(paramctl("roots rooted b"), 0);
    assert_says("no roots");
    leave(client);
}

static void parameters_show_the_errors_that_are_kept_of_their_roots(void **state)
{
    pd_client *client = train_with_roots("errors", 3);
    json_t *answer, *param, *errors;

    (void)state;
    assert_int_equal(paramctl("params errors --json"), 0);
    answer = parsed();
    param = json_array_get(json_object_get(answer, "params"), 1);
    errors = json_object_get(param, "inverse_pth_root_errors");
    assert_int_equal(json_integer_value(json_object_get(param, "roots")), ROOTS);
    assert_int_equal(json_array_size(errors), ROOTS);
    for (size_t i = 0; i < ROOTS; i++) assert_true(json_real_value(json_array_get(errors, i)) <= json_real_value(json_object_get(param, "root_error")));
    assert_true(json_real_value(json_object_get(param, "root_error")) > 0);
    assert_null(json_object_get(json_array_get(json_object_get(answer, "params"), 2), "inverse_pth_root_errors"));
    json_decref(answer);
    assert_int_equal(paramctl("params errors"), 0);
    assert_says("ROOT ERROR");
    assert_null(strstr(output, "inverse_pth_root_errors"));
    assert_int_equal(paramctl("params errors --verbose"), 0);
    assert_says("layer/1: inverse_pth_root_errors ");
    assert_int_equal(paramctl("jobs"), 0);
    assert_says("1152/1152");
    leave(client);
}

static void a_dropped_job_is_gone_and_its_worker_hears_of_it(void **state)
{
    pd_client *client = join_as_worker("dropped");

    (void)state;
    assert_int_equal(paramctl("drop dropped"), 0);
    assert_int_equal(paramctl("params dropped"), 1);
    assert_int_not_equal(push_once(client), PD_OK);
    pd_client_close(client);
}

/* ---- replay and bench ---- */

static const float w0[2] = { 1, 2 }, g1[2] = { 2, 4 }, w1[2] = { 0, 0 };

static tracefile small_trace(void)
{
    tracefile file = tracefile_of("torch_optim", "small", "1", "{\"optimizer\": \"SGD\", \"lr\": 0.5}");

    tracefile_add(&file, "param/0000/w", w0, 2);
    tracefile_add(&file, "grad/0001/w", g1, 2);
    tracefile_add(&file, "param/0001/w", w1, 2);
    return file;
}

static int replay(const tracefile *file, const char *options)
{
    char path[64];
    int status;

    tracefile_write(file, path);
    status = paramctl("replay %s %s", options, path);
    unlink(path);
    return status;
}

static void a_replay_through_the_daemon_is_ok_where_weights_are_alike(void **state)
{
    tracefile file = small_trace();

    (void)state;
    assert_int_equal(replay(&file, "--verbose"), 0);
    assert_says(" ok");
    assert_int_equal(paramctl("jobs"), 0);
    assert_says("no jobs");                                 /* it dropped its own */
}

static void a_replay_through_the_daemon_fails_where_a_weight_differs(void **state)
{
    static const float off[2] = { 0, 1e-3f };
    tracefile file = small_trace();

    (void)state;
    file.entry[2].at = off;
    assert_int_equal(replay(&file, ""), 1);
    assert_says("FAIL: w after step 1");
}

static void a_replay_applies_gradients_that_are_not_finite(void **state)
{
    static const float bad[2] = { NAN, 4 }, after[2] = { NAN, 0 };
    tracefile file = small_trace();

    (void)state;
    file.entry[1].at = bad;
    file.entry[2].at = after;
    assert_int_equal(replay(&file, ""), 0);
    assert_int_equal(replay(&file, "--local"), 0);
}

static void averages_are_taken_by_as_many_workers_as_replicas(void **state)
{
    static const float mean[2] = { 1.5f, 3 }, off[2] = { 1.5f, 3.01f };
    tracefile file = tracefile_of("trax_average", "mean_2", "1", "{\"variant\": \"mean\", \"adasum\": false, \"N_WEIGHTS_SHARDS\": 1, \"n_devices\": 2}");

    (void)state;
    tracefile_add(&file, "grad/0001/r00/w", w0, 2);
    tracefile_add(&file, "grad/0001/r01/w", g1, 2);
    tracefile_add(&file, "average/0001/r00/w", mean, 2);
    tracefile_add(&file, "average/0001/r01/w", mean, 2);
    assert_int_equal(replay(&file, ""), 0);
    file.entry[3].at = off;
    assert_int_equal(replay(&file, ""), 1);
}

static void golden_sgd_traces_are_ok_through_the_daemon(void **state)
{
    json_t *answer, *folder;

    (void)state;
    assert_int_equal(paramctl("replay --json %s", golden_path("torch_optim")), 0);
    answer = parsed();
    folder = json_array_get(json_object_get(answer, "summaries"), 0);
    assert_true(json_integer_value(json_object_get(folder, "ok")) >= 7);
    assert_int_equal(json_integer_value(json_object_get(folder, "failed")), 0);
    json_decref(answer);
}

static void cases_of_a_routine_are_judged_in_this_process_alone(void **state)
{
    static const float x[2] = { 127, -2.5f }, bucket[1] = { 1 }, value[2] = { 127, -2 };
    static const int8_t codes[2] = { 127, -2 };
    tracefile file = tracefile_of("google_shampoo", "quantized_value", "0", "{\"cases\": [{\"index\": 0, \"dtype\": \"int8\"}]}");

    (void)state;
    tracefile_add(&file, "000/input", x, 2);
    tracefile_add_typed(&file, "000/value/quantized", PD_ST_I8, codes, 2);
    tracefile_add(&file, "000/value/bucket_size", bucket, 1);
    tracefile_add(&file, "000/to_float", value, 2);
    assert_int_equal(replay(&file, "--local --verbose"), 0);
    assert_says("1 cases  error 0.00e+00  tolerance 1.00e-06  ok");
    assert_says("case 000");
    assert_int_equal(replay(&file, ""), 0);
    assert_says("skip: cases of a routine");
    file.entry[3].at = x;
    assert_int_equal(replay(&file, "--local"), 1);
    assert_says("FAIL: case 000");
}

static void a_replay_of_nothing_is_a_failure(void **state)
{
    char folder[] = "/tmp/paramd_empty_XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(paramctl("replay --local %s", folder), 1);
    rmdir(folder);
}

static void bench_net_tells_throughput_beside_the_yardstick(void **state)
{
    static const char *const keys[] = { "round_ms", "payload_gb_per_s", "bare_tcp_gb_per_s", "ratio" };
    json_t *answer;

    (void)state;
    assert_int_equal(paramctl("bench net --json --workers 2 --tensors 3 --floats 1000 --rounds 5"), 0);
    answer = parsed();
    for (size_t i = 0; i < 4; i++) assert_true(json_real_value(json_object_get(answer, keys[i])) > 0);
    json_decref(answer);
}

/* ---- the end ---- */

static void a_drained_daemon_says_so(void **state)
{
    (void)state;
    assert_int_equal(paramctl("drain --within 5"), 0);
    assert_int_equal(paramctl("status"), 0);
    assert_says("draining");
}

static void shutdown_ends_the_daemon_with_status_0(void **state)
{
    int status;

    (void)state;
    assert_int_equal(paramctl("shutdown"), 0);
    assert_int_equal(waitpid(server.pid, &status, 0), server.pid);
    server.pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int start_server(void **state)
{
    pd_error err = { 0 };

    (void)state;
    if (pd_child_start(&server, &err) == PD_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

static int stop_server(void **state)
{
    (void)state;
    pd_child_stop(&server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ping_is_answered),
        cmocka_unit_test(a_quiet_ping_prints_nothing),
        cmocka_unit_test(exit_status_is_3_where_nobody_listens),
        cmocka_unit_test(exit_status_is_2_for_what_cannot_be_meant),
        cmocka_unit_test(exit_status_is_1_when_the_server_says_no),
        cmocka_unit_test(every_command_has_help),
        cmocka_unit_test(status_tells_memory_and_loop),
        cmocka_unit_test(optimizers_show_their_hyperparameters),
        cmocka_unit_test(a_replay_through_the_daemon_is_ok_where_weights_are_alike),
        cmocka_unit_test(a_job_shows_its_parameters_and_workers),
        cmocka_unit_test(parameters_show_their_aggregate_and_what_it_holds),
        cmocka_unit_test(who_is_missed_by_initial_weights_is_named),
        cmocka_unit_test(roots_are_listed_with_error_age_and_cost),
        cmocka_unit_test(parameters_show_the_errors_that_are_kept_of_their_roots),
        cmocka_unit_test(a_dropped_job_is_gone_and_its_worker_hears_of_it),
        cmocka_unit_test(a_replay_through_the_daemon_fails_where_a_weight_differs),
        cmocka_unit_test(a_replay_applies_gradients_that_are_not_finite),
        cmocka_unit_test(averages_are_taken_by_as_many_workers_as_replicas),
        cmocka_unit_test(golden_sgd_traces_are_ok_through_the_daemon),
        cmocka_unit_test(cases_of_a_routine_are_judged_in_this_process_alone),
        cmocka_unit_test(a_replay_of_nothing_is_a_failure),
        cmocka_unit_test(bench_net_tells_throughput_beside_the_yardstick),
        cmocka_unit_test(a_drained_daemon_says_so),
        cmocka_unit_test(shutdown_ends_the_daemon_with_status_0),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
