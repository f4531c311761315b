/* Tests paramctl plan against a real daemon: the memory that it forecasts is the memory that the daemon counts after
 * the same job has declared, and it refuses the same jobs. */
#include <sys/wait.h>
#include <jansson.h>

#include "test.h"
#include "daemon_process.h"
#include "job_keys.h"
#include "paramd/client.h"

enum { WORKERS = 4, THREADS = 3, POOL = 2, PARAMS = 4 };

/* A matrix of several chunks, stacked layers that are scanned, a vector, and model state that is averaged. */
static const pd_client_param params[PARAMS] = {
    { .name = "embed", .shape = { 2, { 2100, 1001 } } },
    { .name = "layers.weight", .shape = { 3, { 3, 96, 40 } } },
    { .name = "head.bias", .shape = { 1, { 1001 } } },
    { .name = "norm.running_mean", .shape = { 1, { 40 } } },
};
static const char shapes[] = "embed 2100 1001\nlayers.weight 3 96 40\nhead.bias 1001\nnorm.running_mean 40\n";

static test_daemon *server;
static test_daemon *other; /* the job is on two daemons: the second one; otherwise NULL */
static pd_dtype pushed;    /* element type in which workers push all but model state; 0: float32 */
static char shapes_path[] = "/tmp/paramd_counts_XXXXXX";
static char output[1 << 20]; /* output of the last paramctl command: stdout and stderr */

/* Runs `paramctl WORDS`. Returns its exit status. */
static int run_paramctl(const char *words)
{
    char line[4096];
    FILE *pipe;

    snprintf(line, sizeof line, "%s/paramctl --server %s %s 2>&1", getenv("PARAMD_BIN"), server->url, words);
    assert_non_null(pipe = popen(line, "r"));
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static json_t *asked(const char *words)
{
    json_error_t why;
    json_t *answer;

    if (run_paramctl(words) != 0 || (answer = json_loads(output, 0, &why)) == NULL)
        fail_msg("paramctl %s: %s", words, output);
    return answer;
}

static int64_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value)) fail_msg("there is no number %s", key);
    return (int64_t)json_integer_value(value);
}

/* Returns the forecast of paramctl plan for a rule and for job options, which are given as "a=1 b=2". */
static json_t *planned(const char *rule, const char *options, int workers)
{
    char words[2048], copy[256], *rest;
    size_t at = (size_t)snprintf(
        words, sizeof words,
        "plan --json --workers %d --threads %d --pool-threads %d --rule '*running_mean model_state' --rule \"%s\"",
        workers, THREADS, POOL, rule);

    snprintf(copy, sizeof copy, "%s", options);
    for (char *option = strtok_r(copy, " ", &rest); option != NULL; option = strtok_r(NULL, " ", &rest))
        at += (size_t)snprintf(words + at, sizeof words - at, " --option %s", option);
    snprintf(words + at, sizeof words - at, "%s --push-dtype %s %s", other != NULL ? " --shards 2" : "",
             pushed != 0 ? pd_dtype_name(pushed) : "any", shapes_path);
    return asked(words);
}

/* Opens the first worker of a job and declares its parameters. Returns NULL with the reason in *err if the daemon
 * refuses. */
static pd_client *declared(const char *rule, const char *options, int workers, pd_error *err)
{
    const char *rules[] = { "*running_mean model_state", rule, NULL }, *list[9] = { NULL };
    pd_client_param own[PARAMS];
    char copy[256], urls[256], *rest;
    size_t n = 0;
    pd_client *client;

    snprintf(urls, sizeof urls, "%s %s", server->url, other != NULL ? other->url : "");
    snprintf(copy, sizeof copy, "%s", options);
    for (char *option = strtok_r(copy, " ", &rest); option != NULL; option = strtok_r(NULL, " ", &rest))
        list[n++] = option;
    if (pd_client_open(&client,
                       &(pd_client_options){ .urls = urls,
                                             .job = "counted",
                                             .world_size = workers,
                                             .rules = rules,
                                             .options = list,
                                             .deadline = patient(20) },
                       err) != PD_OK)
        return NULL;
    memcpy(own, params, sizeof own);
    for (size_t i = 0; i + 1 < PARAMS; i++) own[i].push_dtype = pushed;
    if (pd_client_declare(client, own, PARAMS, err) == PD_OK) return client;
    pd_client_close(client);
    return NULL;
}

static void assert_same(int64_t forecast, int64_t counted, const char *what, const char *rule, const char *options)
{
    if (forecast != counted)
        fail_msg("%s of \"%s\" with %s: forecast %lld, the daemon counts %lld", what, rule, options,
                 (long long)forecast, (long long)counted);
}

/* Compares the forecast and the counted bytes of each parameter, for its aggregate and for its optimizer state. */
static void compare_params(const json_t *plan, const char *rule, const char *options)
{
    json_t *counted = asked("params --json counted");
    size_t i;
    json_t *param;

    assert_int_equal(json_array_size(json_object_get(counted, "params")), PARAMS);
    json_array_foreach(json_object_get(counted, "params"), i, param)
    {
        const json_t *kind =
            json_array_get(json_object_get(plan, "kinds"),
                           (size_t)integer(json_array_get(json_object_get(plan, "params"), i), "kind"));
        assert_same(integer(kind, "collect_bytes"), integer(param, "collect_bytes"), "collect_bytes", rule, options);
        assert_same(integer(kind, "state_bytes"), integer(param, "state_bytes"), "state_bytes", rule, options);
        assert_string_equal(json_string_value(json_object_get(kind, "aggregate")),
                            json_string_value(json_object_get(param, "aggregate")));
    }
    json_decref(counted);
}

/* Returns the bytes that the daemon counts for the only job. */
static int64_t committed(void)
{
    json_t *jobs = asked("jobs --json");
    int64_t bytes;

    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 1);
    bytes = integer(json_array_get(json_object_get(jobs, "jobs"), 0), "committed_bytes");
    json_decref(jobs);
    return bytes;
}

/* Returns the bytes that the fuller one of two daemons counts. */
static int64_t most_committed(void)
{
    test_daemon *first = server;
    int64_t bytes = committed(), more;

    server = other;
    more = committed();
    server = first;
    return more > bytes ? more : bytes;
}

static void drop(void)
{
    test_daemon *first = server;

    assert_int_equal(run_paramctl("drop counted"), 0);
    if (other == NULL) return;
    server = other;
    assert_int_equal(run_paramctl("drop counted"), 0);
    server = first;
}

/* Compares the forecast for two daemons with the bytes that the fuller one counts. */
static void compare_shards(const char *rule, const char *options)
{
    json_t *plan = planned(rule, options, WORKERS), *two = json_array_get(json_object_get(plan, "shard_plans"), 0);
    pd_error err = { 0 };
    pd_client *client = declared(rule, options, WORKERS, &err);

    if (client == NULL) fail_msg("%s %s: %s", rule, options, err.text);
    assert_same(integer(two, "memory"), most_committed(), "memory", rule, options);
    json_decref(plan);
    pd_client_close(client);
    drop();
}

static void compare(const char *rule, const char *options)
{
    json_t *plan = planned(rule, options, WORKERS);
    pd_error err = { 0 };
    pd_client *client = declared(rule, options, WORKERS, &err);

    if (client == NULL) fail_msg("%s %s: %s", rule, options, err.text);
    assert_same(integer(json_object_get(json_object_get(plan, "total"), "memory"), "all"), committed(), "all", rule,
                options);
    compare_params(plan, rule, options);
    json_decref(plan);
    pd_client_close(client);
    assert_int_equal(run_paramctl("drop counted"), 0);
}

TEST(a_forecast_is_what_the_daemon_counts_for_every_aggregate)
{
    const char *at = pd_job_keys[PD_JOB_KEY_AGGREGATE].choices;
    char option[64];

    for (;;) {
        size_t n = strcspn(at, "|");
        snprintf(option, sizeof option, "aggregate=%.*s", (int)n, at);
        compare("* sgd lr=1 momentum=0.9", option);
        if (at[n] == '\0') return;
        at += n + 1;
    }
}

TEST(a_forecast_counts_contributions_by_the_type_that_workers_push)
{
    for (pushed = PD_INT8; pushed <= PD_INT4; pushed++) {
        compare("* sgd lr=1 momentum=0.9", "aggregate=median");
        compare("* sgd lr=1 momentum=0.9", "aggregate=adasum_vdot");
        compare("* sgd lr=1 momentum=0.9", "quorum=2");
        compare("* sgd lr=1 momentum=0.9", "aggregate=mean");
    }
    pushed = 0;
}

TEST(a_forecast_is_what_the_daemon_counts_for_every_optimizer)
{
    json_t *list = asked("optimizers --json"), *entry;
    char rule[128];
    size_t i, n = 0;

    json_array_foreach(json_object_get(list, "optimizers"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *more = strcmp(name, "adafactor") == 0
                               ? " learning_rate=0.1 factor_map=['layers.*':(BATCH,ROW,COLUMN),'.*':HEURISTIC]"
                               : ""; /* adafactor has hyperparameters without a default */
        snprintf(rule, sizeof rule, "* %s%s", name, more);
        compare(rule, "aggregate=median");
        n++;
    }
    assert_true(n >= 15);
    json_decref(list);
}

TEST(a_forecast_counts_late_roots_blocks_and_stored_slots_as_the_daemon_does)
{
    compare("* scalable_shampoo block_size=64 best_effort_memory_usage_reduction=yes preconditioning_compute_steps=10 "
            "root_delay=10",
            "aggregate=adasum");
    compare(
        "* shampoo max_preconditioner_dim=100 precondition_frequency=5 root_delay=3 grafting_config=Adam(beta2=0.999)",
        "aggregate=mean");
    compare("* kron block_size=50 partition_grads_into_blocks=yes root_delay=1", "aggregate=trimmed_mean");
}

TEST(a_forecast_counts_clipping_as_the_daemon_does)
{
    compare("* sgd lr=1", "clip_global_norm=1 nonfinite_scope=job");
    compare("* adafactor learning_rate=0.1 global_norm_clip_threshold=1 "
            "factor_map=['layers.*':(BATCH,ROW,COLUMN),'.*':HEURISTIC]",
            "initial_weights=mean");
}

TEST(a_forecast_counts_open_sets_as_the_daemon_does)
{
    compare("* sgd lr=1", "quorum=2");
    compare("* adam lr=1", "rounds=async aggregate=weighted_mean");
    compare("* sgd lr=1", "quorum=2 staleness=4 aggregate=median");
    compare("* sgd lr=1", "on_lost_worker=shrink aggregate=adasum adasum_fold=yes");
}

TEST(a_forecast_for_two_daemons_is_what_the_fuller_one_counts)
{
    static const char *const flags[] = { "--threads-step-threads=3", "--threads-pool-threads=2", "--job-job-linger=1h",
                                         NULL };

    other = daemon_start(flags);
    compare_shards("* adamw", "nonfinite_scope=job");
    compare_shards("* adamw", "nonfinite_scope=job split_bytes=256KiB");
    compare_shards("* sgd lr=1", "clip_global_norm=1 split_bytes=256KiB");
    compare_shards("* kron", "skip_outlier=3");
    compare_shards("* sgd lr=1", "nonfinite_scope=parameter");
    compare_shards("* adafactor learning_rate=0.1 global_norm_clip_threshold=1 "
                   "factor_map=['layers.*':(BATCH,ROW,COLUMN),'.*':HEURISTIC]",
                   "aggregate=mean");
    assert_int_equal(daemon_stop(other, patient(10)), 0);
    other = NULL;
}

TEST(a_forecast_tells_apart_what_checkpoints_add)
{
    char folder[] = "/tmp/paramd_counts_XXXXXX", state_dir[64], remove[64];
    const char *const flags[] = { "--threads-step-threads=3", "--threads-pool-threads=2", state_dir, NULL };
    static const struct {
        const char *options, *more;
    } cases[] = { { "aggregate=mean", "checkpoint_if_durable" },
                  { "durability=log", NULL },
                  { "durability=none", NULL } };
    const char *rule = "* shampoo precondition_frequency=5 root_delay=3";
    test_daemon *plain = server;

    assert_non_null(mkdtemp(folder));
    snprintf(state_dir, sizeof state_dir, "--state-dir=%s/state", folder);
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    server = daemon_start(flags);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *plan = planned(rule, cases[i].options, WORKERS),
               *memory = json_object_get(json_object_get(plan, "total"), "memory");
        pd_error err = { 0 };
        pd_client *client = declared(rule, cases[i].options, WORKERS, &err);
        if (client == NULL) fail_msg("%s", err.text);
        assert_same(integer(memory, "all") + integer(memory, "checkpoint_if_durable"), committed(), "all", rule,
                    cases[i].options);
        assert_true((integer(memory, "checkpoint_if_durable") > 0) == (cases[i].more != NULL));
        json_decref(plan);
        pd_client_close(client);
        assert_int_equal(run_paramctl("drop counted"), 0);
    }
    assert_int_equal(daemon_stop(server, patient(10)), 0);
    assert_int_equal(system(remove), 0);
    server = plain;
}

TEST(what_the_daemon_refuses_a_forecast_refuses_in_its_words)
{
    static const struct {
        int workers;
        const char *rule, *options, *words;
    } cases[] = {
        { 6, "* sgd lr=1", "aggregate=adasum", "aggregate = adasum needs a power of two" },
        { 2, "* sgd lr=1", "aggregate=trimmed_mean", "set trim to less than half of the workers" },
        { 2, "* sgd lr=1", "aggregate=mode", "aggregate = mode: expected one of mean|" },
        { 2, "* sgd lr=1", "average=mean", "average is not a job key; expected one of: aggregate" },
        { 3, "* shampoo num_trainers_per_group=2", "aggregate=mean", "Must divide the number of workers, 3." },
        { 3, "* adafactor learning_rate=0.1 step_offset=5 factor_map=['layers.*':(BATCH,ROW,COLUMN),'.*':HEURISTIC]",
          "start_step=4", "step_offset" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[1024];
        pd_error err = { 0 };
        snprintf(words, sizeof words,
                 "plan --workers %d --rule '*running_mean model_state' --rule \"%s\" --option %s %s", cases[i].workers,
                 cases[i].rule, cases[i].options, shapes_path);
        assert_int_equal(run_paramctl(words), 2);
        if (strstr(output, cases[i].words) == NULL)
            fail_msg("%s does not say \"%s\":\n%s", words, cases[i].words, output);
        assert_null(declared(cases[i].rule, cases[i].options, cases[i].workers, &err));
        if (strstr(err.text, cases[i].words) == NULL)
            fail_msg("the daemon does not say \"%s\": %s", cases[i].words, err.text);
        run_paramctl("drop counted");
    }
}

static int begin(void **state)
{
    static const char *const flags[] = { "--threads-step-threads=3", "--threads-pool-threads=2", "--job-job-linger=1h",
                                         NULL };
    int fd = mkstemp(shapes_path);

    (void)state;
    if (fd < 0 || write(fd, shapes, strlen(shapes)) != (ssize_t)strlen(shapes)) return 1;
    close(fd);
    server = daemon_start(flags);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(shapes_path);
    return daemon_stop(server, patient(10)) != 0;
}

/* Drops the job that a failed test has left, so that the next test does not see it. */
static int fresh(void **state)
{
    (void)state;
    run_paramctl("drop counted");
    return 0;
}

EACH_TEST(fresh, NULL);

GROUP(begin, end);
