/* Tests that a replay through a daemon agrees with the recorded run, and with the replay in this process. */
#include "test.h"
#include "daemon_process.h"
#include "replay.h"
#include "tracefile.h"

static test_daemon *server;

static const float w0[2] = { 1, 2 }, g1[2] = { 2, 4 }, w1[2] = { 0, 0 };

static tracefile small_trace(void)
{
    tracefile file = tracefile_of("torch_optim", "small", "1", "{\"optimizer\": \"SGD\", \"lr\": 0.5}");

    tracefile_add(&file, "param/0000/w", w0, 2);
    tracefile_add(&file, "grad/0001/w", g1, 2);
    tracefile_add(&file, "param/0001/w", w1, 2);
    return file;
}

static void assert_one(const char *path, const pd_replay_options *options, pd_replay_outcome outcome,
                       const char *part_of_why)
{
    const char *where = options->local ? "here" : "through the daemon";
    pd_replay_result r;

    pd_replay_file(&r, path, options);
    if (r.outcome != outcome) fail_msg("%s: outcome %d, error %g: %s", where, r.outcome, r.verdict.error, r.why.text);
    if (strstr(r.why.text, part_of_why) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", where, r.why.text, part_of_why);
    pd_replay_result_free(&r);
}

static void assert_both(const tracefile *file, pd_replay_outcome outcome, const char *part_of_why)
{
    char path[64];

    tracefile_write(file, path);
    assert_one(path, &(pd_replay_options){ .local = true }, outcome, part_of_why);
    assert_one(path, &(pd_replay_options){ .server = server->url, .timeout = patient(10) }, outcome, part_of_why);
    unlink(path);
}

/* One parameter is named "*". In a group of parameters, "*" names this parameter only, and does not match all names. */
TEST(each_group_of_parameters_has_its_own_rule)
{
    static const float v1[2] = { .5f, 1 };
    tracefile file = small_trace();

    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": 2, \"groups\": [{\"params\": [\"*\"], \"lr\": 0.25}, {\"params\": "
                   "[\"w\", \"a b\"], \"lr\": 0.5}]}");
    tracefile_add(&file, "param/0000/*", w0, 2);
    tracefile_add(&file, "grad/0001/*", g1, 2);
    tracefile_add(&file, "param/0001/*", v1, 2);
    tracefile_add(&file, "param/0000/a b", w0, 2);
    tracefile_add(&file, "grad/0001/a b", g1, 2);
    tracefile_add(&file, "param/0001/a b", w1, 2);
    assert_both(&file, PD_REPLAY_OK, "");
}

/* Makes the trace of one step of Meta's Shampoo. A NaN in the gradient of parameter w leaves w unchanged. Parameter
 * v belongs to another group, and takes the step. */
static tracefile failing_trace(void)
{
    static const float bad[2] = { NAN, 4 }, v1[2] = { .5f, 1.5f }, g[2] = { 1, 1 };
    tracefile file = small_trace();

    tracefile_meta(&file, "system", "meta_shampoo");
    tracefile_meta(&file, "noise_bc32", "1e-6");
    tracefile_meta(&file, "config",
                   "{\"lr\": 0.5, \"betas\": [0, 1], \"grafting_config\": {\"type\": \"sgd\"}, \"groups\": "
                   "[{\"params\": [\"v\"], \"epsilon\": 1e-3}]}");
    file.entry[1].at = bad;
    file.entry[2].at = w0;
    tracefile_add(&file, "param/0000/v", w0, 2);
    tracefile_add(&file, "grad/0001/v", g, 2);
    tracefile_add(&file, "param/0001/v", v1, 2);
    return file;
}

TEST(a_recorded_error_is_met_by_one_of_the_same_cause)
{
    static const float moved[2] = { 1, 1 };
    tracefile file = failing_trace();

    tracefile_meta(&file, "errors", "[{\"step\": 1, \"message\": \"Encountered nan values in a factor\"}]");
    assert_both(&file, PD_REPLAY_OK, "");
    tracefile_meta(&file, "errors", "[{\"step\": 1, \"message\": \"Encountered inf values in a factor\"}]");
    assert_both(&file, PD_REPLAY_FAILED, "inf values");
    tracefile_meta(&file, "errors", "[{\"step\": 1, \"message\": \"Encountered nan values in a factor\"}]");
    file.entry[2].at = moved;
    assert_both(&file, PD_REPLAY_FAILED, "");
}

TEST(an_error_that_was_not_recorded_fails)
{
    tracefile file = failing_trace();

    assert_both(&file, PD_REPLAY_FAILED, "nan values");
}

/* Without merged dimensions a scalar has no Kronecker factor. The recorded Shampoo fails in every step, and paramd
 * refuses the declaration: the replay counts this as agreement. */
TEST(a_refused_declaration_agrees_where_upstream_could_not_take_a_step)
{
    static const float one = 1, half = .5f;
    tracefile file = tracefile_of("meta_shampoo", "scalar", "1", "{\"lr\": 0.5, \"use_merge_dims\": false}");

    tracefile_meta(&file, "quirk", "scalars fail");
    tracefile_meta(&file, "errors", "[{\"step\": 1}]");
    tracefile_add(&file, "param/0000/s", &one, 0);
    tracefile_add(&file, "grad/0001/s", &one, 0);
    tracefile_add(&file, "param/0001/s", &one, 0);
    assert_both(&file, PD_REPLAY_OK, "");
    file.entry[2].at = &half;
    assert_both(&file, PD_REPLAY_FAILED, "");
}

TEST(a_refused_declaration_fails_where_upstream_took_a_step)
{
    static const float one = 1;
    tracefile file = tracefile_of("meta_shampoo", "scalar", "2", "{\"lr\": 0.5, \"use_merge_dims\": false}");

    tracefile_meta(&file, "errors", "[{\"step\": 1}]");
    tracefile_add(&file, "param/0000/s", &one, 0);
    tracefile_add(&file, "param/0001/s", &one, 0);
    tracefile_add(&file, "param/0002/s", &one, 0);
    assert_both(&file, PD_REPLAY_FAILED, "parameter s");
}

/* The first step has no gradient at all, so it does not count. The second step is the optimizer's first one: its
 * bias correction turns 0.5 g into g. */
TEST(a_step_without_gradients_is_no_step)
{
    static const float none[2] = { 1, 2 }, g[2] = { 0, 3 }, after[2] = { 1, -1 };
    tracefile file = small_trace();

    tracefile_meta(&file, "system", "meta_shampoo");
    tracefile_meta(&file, "noise_bc32", "1e-6");
    tracefile_meta(&file, "steps", "2");
    tracefile_meta(&file, "config",
                   "{\"lr\": 1, \"betas\": [0.5, 1], \"start_preconditioning_step\": 9, \"grafting_config\": "
                   "{\"type\": \"sgd\"}}");
    file.n = 1;
    tracefile_add(&file, "param/0001/w", none, 2);
    tracefile_add(&file, "grad/0002/w", g, 2);
    tracefile_add(&file, "param/0002/w", after, 2);
    assert_both(&file, PD_REPLAY_OK, "");
}

/* SGD updates each element independently of the others, so training in shards gives the same weights. */
TEST(blocks_of_shards_are_parameters_of_their_own)
{
    tracefile file = small_trace();

    tracefile_meta(&file, "shards", "[{\"w\": [0, 1]}, {\"w\": [1, 2]}]");
    assert_both(&file, PD_REPLAY_OK, "");
}

/* Makes the trace of one averaging of a parameter with two elements: the gradient of each replica, and the average
 * that the replica receives. */
static tracefile averages(const char *config, int replicas, const float gradient[][2], const float average[][2])
{
    tracefile file = tracefile_of("trax_average", "averages", "1", config);
    char name[80];

    for (int r = 0; r < replicas; r++) {
        snprintf(name, sizeof name, "grad/0001/r%02d/w", r);
        tracefile_add(&file, name, gradient[r], 2);
        snprintf(name, sizeof name, "average/0001/r%02d/w", r);
        tracefile_add(&file, name, average[r], 2);
    }
    return file;
}

static const float four[4][2] = { { 1, 0 }, { 0, 2 }, { 0, 4 }, { 8, 0 } };

TEST(replicas_average_with_those_that_hold_their_shard_of_the_weights)
{
    static const float halves[4][2] = { { .5f, 2 }, { 4, 1 }, { .5f, 2 }, { 4, 1 } },
                       sums[4][2] = { { 1, 4 }, { 8, 2 }, { 1, 4 }, { 8, 2 } };
    tracefile file = averages("{\"variant\": \"mean\", \"n_devices\": 4, \"N_WEIGHTS_SHARDS\": 2}", 4, four, halves);

    assert_both(&file, PD_REPLAY_OK, "");
    file = averages("{\"variant\": \"mean\", \"n_devices\": 4, \"N_WEIGHTS_SHARDS\": 4}", 4, four, four);
    assert_both(&file, PD_REPLAY_OK, "");
    file = averages("{\"variant\": \"mean\", \"n_devices\": 4, \"N_WEIGHTS_SHARDS\": 1}", 4, four, halves);
    assert_both(&file, PD_REPLAY_FAILED, "");
    file = averages("{\"variant\": \"adasum_vdot\", \"adasum\": true, \"n_devices\": 4, \"N_WEIGHTS_SHARDS\": 2}", 4,
                    four, sums);
    assert_both(&file, PD_REPLAY_OK, "");
}

/* The Adasum of orthogonal gradients is their sum: (1, 0) + (0, 2) = (1, 2), and (0, 4) + (8, 0) = (8, 4). These two
 * sums have the dot product 16 and the squared norms 5 and 80. Their Adasum is (1 - 16 / 10) (1, 2) + (1 - 16 / 160)
 * (8, 4). */
TEST(adasum_goes_through_the_daemon)
{
    static const float merged[4][2] = { { 6.6f, 2.4f }, { 6.6f, 2.4f }, { 6.6f, 2.4f }, { 6.6f, 2.4f } };
    const char *config =
        "{\"variant\": \"adasum_butterfly\", \"adasum\": true, \"n_devices\": 4, \"N_WEIGHTS_SHARDS\": 1}";
    tracefile file = averages(config, 4, four, merged);

    assert_both(&file, PD_REPLAY_OK, "");
    file = averages(config, 4, four, four);
    assert_both(&file, PD_REPLAY_FAILED, "");
    file = averages(config, 3, four, merged);
    assert_both(&file, PD_REPLAY_FAILED, "adasum of 3 replicas");
}

/* The parameter has several chunks, and shards end inside a chunk. */
TEST(what_was_sent_is_counted_in_chunks)
{
    enum { N = 1500, RANKS = 3 }; /* a chunk has 1024 elements */
    static const char *const flags[] = { "--chunk-bytes=4KiB", NULL };
    test_daemon *whole = server;
    float ones[N];

    server = daemon_start(flags);
    for (size_t i = 0; i < N; i++) ones[i] = 1;
    for (int shards = 1; shards <= RANKS; shards += 2) {
        tracefile file = { 0 };
        char config[100], name[32];
        tracefile_meta(&file, "system", "trax_average");
        tracefile_meta(&file, "case", "chunks");
        tracefile_meta(&file, "steps", "1");
        snprintf(config, sizeof config, "{\"variant\": \"mean\", \"n_devices\": %d, \"N_WEIGHTS_SHARDS\": %d}", RANKS,
                 shards);
        tracefile_meta(&file, "config", config);
        for (int r = 0; r < RANKS; r++) {
            snprintf(name, sizeof name, "grad/0001/r%02d/w", r);
            tracefile_add(&file, name, ones, N);
            snprintf(name, sizeof name, "average/0001/r%02d/w", r);
            tracefile_add(&file, name, ones, N);
        }
        assert_both(&file, PD_REPLAY_OK, "");
    }
    assert_int_equal(daemon_stop(server, patient(10)), 0);
    server = whole;
}

static int start_server(void **state)
{
    (void)state;
    server = daemon_start(NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    return daemon_stop(server, patient(10));
}

GROUP(start_server, stop_server);
