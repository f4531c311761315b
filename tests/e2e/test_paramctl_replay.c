/* Tests paramctl replay and bench with a real daemon. */
#include "test.h"
#include "golden.h"
#include "daemon_process.h"
#include "tracefile.h"

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

TEST(a_replay_through_the_daemon_is_ok_where_weights_are_alike)
{
    tracefile file = small_trace();

    assert_int_equal(replay(&file, "--verbose"), 0);
    assert_says(" ok");
    assert_int_equal(paramctl("jobs"), 0);
    assert_says("no jobs"); /* the command has dropped the job that it created */
}

TEST(a_replay_through_the_daemon_fails_where_a_weight_differs)
{
    static const float off[2] = { 0, 1e-3f };
    tracefile file = small_trace();

    file.entry[2].at = off;
    assert_int_equal(replay(&file, ""), 1);
    assert_says("FAIL: w after step 1");
}

TEST(a_replay_applies_gradients_that_are_not_finite)
{
    static const float bad[2] = { NAN, 4 }, after[2] = { NAN, 0 };
    tracefile file = small_trace();

    file.entry[1].at = bad;
    file.entry[2].at = after;
    assert_int_equal(replay(&file, ""), 0);
    assert_int_equal(replay(&file, "--local"), 0);
}

TEST(averages_are_taken_by_as_many_workers_as_replicas)
{
    static const float mean[2] = { 1.5f, 3 }, off[2] = { 1.5f, 3.01f };
    tracefile file =
        tracefile_of("trax_average", "mean_2", "1",
                     "{\"variant\": \"mean\", \"adasum\": false, \"N_WEIGHTS_SHARDS\": 1, \"n_devices\": 2}");

    tracefile_add(&file, "grad/0001/r00/w", w0, 2);
    tracefile_add(&file, "grad/0001/r01/w", g1, 2);
    tracefile_add(&file, "average/0001/r00/w", mean, 2);
    tracefile_add(&file, "average/0001/r01/w", mean, 2);
    assert_int_equal(replay(&file, ""), 0);
    file.entry[3].at = off;
    assert_int_equal(replay(&file, ""), 1);
}

TEST(golden_sgd_traces_are_ok_through_the_daemon)
{
    json_t *answer, *folder;

    assert_int_equal(paramctl("replay --json %s", golden_path("torch_optim")), 0);
    answer = parsed();
    folder = json_array_get(json_object_get(answer, "summaries"), 0);
    assert_true(json_integer_value(json_object_get(folder, "ok")) >= 7);
    assert_int_equal(json_integer_value(json_object_get(folder, "failed")), 0);
    json_decref(answer);
}

TEST(cases_of_a_routine_are_judged_in_this_process_alone)
{
    static const float x[2] = { 127, -2.5f }, bucket[1] = { 1 }, value[2] = { 127, -2 };
    static const int8_t codes[2] = { 127, -2 };
    tracefile file =
        tracefile_of("google_shampoo", "quantized_value", "0", "{\"cases\": [{\"index\": 0, \"dtype\": \"int8\"}]}");

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

TEST(a_replay_of_nothing_is_a_failure)
{
    char folder[] = "/tmp/paramd_empty_XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_int_equal(paramctl("replay --local %s", folder), 1);
    rmdir(folder);
}

TEST(bench_net_tells_throughput_beside_the_yardstick)
{
    static const char *const keys[] = { "round_ms", "payload_gb_per_s", "bare_tcp_gb_per_s",
                                        "ratio",    "cpu_ratio",        "work_ratio" };
    json_t *answer;

    assert_int_equal(paramctl("bench net --json --workers 2 --tensors 3 --floats 1000 --rounds 5"), 0);
    answer = parsed();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_true(json_real_value(json_object_get(answer, keys[i])) > 0);
    json_decref(answer);
}

GROUP(paramctl_start_server, paramctl_stop_server);
