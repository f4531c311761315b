/* Tests how recorded runs are read, and which files are refused. */
#include "test.h"
#include "trace.h"
#include "tracefile.h"

/* A trace of two parameters and two steps. Parameter b has no gradient in step 2. */
static const float w0[3] = { 1, 2, 3 }, w1[3] = { 4, 5, 6 }, w2[3] = { 7, 8, 9 };
static const float b0[2] = { -1, -2 }, gw[3] = { .5f, .25f, .125f }, gb[2] = { 2, 4 };

static tracefile valid_file(void)
{
    tracefile file = tracefile_of("torch_optim", "small", "2", "{\"optimizer\": \"SGD\", \"lr\": 1}");

    tracefile_meta(&file, "noise", "2e-7");
    tracefile_add(&file, "param/0000/w", w0, 3);
    tracefile_add(&file, "param/0000/b", b0, 2);
    tracefile_add(&file, "grad/0001/w", gw, 3);
    tracefile_add(&file, "grad/0001/b", gb, 2);
    tracefile_add(&file, "grad/0002/w", gw, 3);
    tracefile_add(&file, "param/0001/w", w1, 3);
    tracefile_add(&file, "param/0001/b", b0, 2);
    tracefile_add(&file, "param/0002/w", w2, 3);
    tracefile_add(&file, "param/0002/b", b0, 2);
    return file;
}

/* Writes `file` to disk and opens it as a trace, which checks its contents. */
static int open_file(const tracefile *file, pd_trace **out, pd_error *err)
{
    char path[64];
    int rc;

    tracefile_write(file, path);
    *out = NULL;
    rc = pd_trace_open(out, path, err);
    unlink(path);
    return rc == PD_OK ? pd_trace_check(*out, err) : rc;
}

static void assert_refused(const tracefile *file, int code, const char *part_of_text)
{
    pd_trace *trace;
    pd_error err = { 0 };

    assert_int_equal(open_file(file, &trace, &err), code);
    if (strstr(err.text, part_of_text) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part_of_text);
    pd_trace_close(trace);
}

static pd_trace *open_valid(const tracefile *file)
{
    pd_trace *trace;
    pd_error err = { 0 };

    if (open_file(file, &trace, &err) != PD_OK) fail_msg("%s", err.text);
    return trace;
}

static size_t param_named(const pd_trace *trace, const char *name)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(params[i].name, name) == 0) return i;
    }
    fail_msg("no parameter %s", name);
    return 0;
}

TEST(gives_metadata_and_parameters)
{
    tracefile file = valid_file();
    pd_trace *trace = open_valid(&file);
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    assert_string_equal(trace->system, "torch_optim");
    assert_string_equal(trace->name, "small");
    assert_int_equal(trace->steps, 2);
    assert_int_equal(trace->replicas, 1);
    assert_int_equal(n, 2);
    assert_int_equal(params[param_named(trace, "w")].elements, 3);
    assert_int_equal(params[param_named(trace, "b")].elements, 2);
    assert_int_equal(trace->most_elements, 3);
    assert_false(trace->averages);
    assert_false(trace->extreme);
    pd_trace_close(trace);
}

TEST(gives_weights_and_gradients_of_each_step)
{
    tracefile file = valid_file();
    pd_trace *trace = open_valid(&file);
    size_t w = param_named(trace, "w"), b = param_named(trace, "b");
    float at[3];
    double recorded[3];

    assert_true(pd_trace_initial(trace, w, at));
    assert_memory_equal(at, w0, sizeof w0);
    assert_true(pd_trace_gradient(trace, 1, 0, b, at));
    assert_memory_equal(at, gb, sizeof gb);
    assert_false(pd_trace_gradient(trace, 2, 0, b, at));
    assert_true(pd_trace_weights(trace, 2, w, recorded));
    for (int i = 0; i < 3; i++) assert_true(recorded[i] == (double)w2[i]);
    pd_trace_close(trace);
}

TEST(tolerance_is_ten_times_the_noise)
{
    tracefile file = valid_file();
    pd_trace *trace = open_valid(&file);

    assert_true(fabs(trace->tolerance - 3e-6) < 1e-15);
    pd_trace_close(trace);
}

TEST(tolerance_is_three_times_the_noise_of_a_run_with_the_same_scalars)
{
    tracefile file = valid_file();
    pd_trace *trace;

    tracefile_meta(&file, "noise_bc32", "1e-6");
    trace = open_valid(&file);
    assert_true(fabs(trace->tolerance - 4e-6) < 1e-15);
    pd_trace_close(trace);
}

TEST(weights_are_compared_only_at_param_steps)
{
    tracefile file = valid_file();
    pd_trace *trace;
    double recorded[3];

    tracefile_meta(&file, "param_steps", "[2]");
    trace = open_valid(&file);
    assert_false(pd_trace_weights(trace, 1, param_named(trace, "w"), recorded));
    assert_true(pd_trace_weights(trace, 2, param_named(trace, "w"), recorded));
    pd_trace_close(trace);
}

TEST(param_steps_may_come_as_a_table)
{
    static const int32_t steps[1] = { 1 };
    tracefile file = valid_file();
    pd_trace *trace;
    double recorded[3];

    tracefile_add_typed(&file, "table/param_steps", PD_ST_I32, steps, 1);
    trace = open_valid(&file);
    assert_true(pd_trace_weights(trace, 1, param_named(trace, "w"), recorded));
    assert_false(pd_trace_weights(trace, 2, param_named(trace, "w"), recorded));
    pd_trace_close(trace);
}

/* Makes a valid file of two steps, but without the weights after step 1. */
static tracefile sparse_file(void)
{
    tracefile file = valid_file(), sparse = { 0 };

    memcpy(sparse.meta, file.meta, sizeof sparse.meta);
    sparse.n_meta = file.n_meta;
    for (size_t i = 0; i < file.n; i++)
        if (strncmp(file.entry[i].name, "param/0001/", 11) != 0) sparse.entry[sparse.n++] = file.entry[i];
    return sparse;
}

TEST(a_trace_of_a_model_with_its_loss_has_weights_at_some_steps)
{
    static const float loss[2] = { 2, 1 };
    tracefile file = sparse_file();
    pd_trace *trace;
    double recorded[3];

    assert_refused(&file, PD_INVALID_ARGUMENT, "param/0001");
    tracefile_add(&file, "loss", loss, 2);
    trace = open_valid(&file);
    assert_false(pd_trace_weights(trace, 1, param_named(trace, "w"), recorded));
    assert_true(pd_trace_weights(trace, 2, param_named(trace, "w"), recorded));
    pd_trace_close(trace);
}

TEST(a_schedule_gives_each_step_its_rate)
{
    static const float first = .5f;
    static const double table[2] = { 9, .25 };
    tracefile file = valid_file();
    pd_trace *trace;
    double rate = 0;

    tracefile_add(&file, "learning_rate/0001", &first, 0);
    tracefile_add_typed(&file, "table/learning_rate", PD_ST_F64, table, 2);
    trace = open_valid(&file);
    assert_true(pd_trace_rate(trace, 1, &rate) && rate == .5);
    assert_true(pd_trace_rate(trace, 2, &rate) && rate == .25);
    pd_trace_close(trace);
}

TEST(reads_bfloat16_weights)
{
    static const uint16_t half[3] = { 0x3f80, 0x4000, 0xc040 }; /* 1, 2, -3 */
    tracefile file = valid_file();
    pd_trace *trace;
    double recorded[3];

    file.entry[5] = file.entry[file.n - 1];
    file.n--;
    tracefile_add_typed(&file, "param/0001/w", PD_ST_BF16, half, 3);
    trace = open_valid(&file);
    assert_true(pd_trace_weights(trace, 1, param_named(trace, "w"), recorded));
    assert_true(recorded[0] == 1 && recorded[1] == 2 && recorded[2] == -3);
    pd_trace_close(trace);
}

/* Some programs cannot write bfloat16 scalars. They write vectors of one element. */
TEST(a_vector_of_one_bfloat16_is_a_scalar_where_its_gradient_is)
{
    static const uint16_t half = 0x3f80;
    static const float one = 1;
    tracefile file = valid_file();
    pd_trace *trace;

    tracefile_add_typed(&file, "param/0000/s", PD_ST_BF16, &half, 1);
    tracefile_add_typed(&file, "param/0001/s", PD_ST_BF16, &half, 1);
    tracefile_add_typed(&file, "param/0002/s", PD_ST_BF16, &half, 1);
    tracefile_add(&file, "grad/0001/s", &one, 1);
    trace = open_valid(&file);
    assert_int_equal(trace->params[param_named(trace, "s")].shape.rank, 1);
    pd_trace_close(trace);
    file.entry[file.n - 1].shape = (pd_shape){ 0 };
    trace = open_valid(&file);
    assert_int_equal(trace->params[param_named(trace, "s")].shape.rank, 0);
    pd_trace_close(trace);
    snprintf(file.entry[file.n - 1].name, sizeof file.entry[file.n - 1].name, "state/0001/s/v");
    trace = open_valid(&file);
    assert_int_equal(trace->params[param_named(trace, "s")].shape.rank, 0);
    pd_trace_close(trace);
}

TEST(notices_gradients_that_are_not_finite)
{
    static const float bad[3] = { 1, NAN, 2 };
    tracefile file = valid_file();
    pd_trace *trace;

    file.entry[4].at = bad;
    trace = open_valid(&file);
    assert_true(trace->extreme);
    pd_trace_close(trace);
}

TEST(knows_the_steps_that_raised_an_error)
{
    tracefile file = valid_file();
    pd_trace *trace;

    tracefile_meta(&file, "errors", "[{\"step\": 2, \"type\": \"ValueError\"}, {\"step\": 99}]");
    trace = open_valid(&file);
    assert_null(trace->error[1]);
    assert_non_null(trace->error[2]);
    pd_trace_close(trace);
}

TEST(averages_have_a_gradient_and_a_result_for_each_replica)
{
    tracefile file = { 0 };
    pd_trace *trace;
    float at[3];
    double recorded[3];

    tracefile_meta(&file, "system", "trax_average");
    tracefile_meta(&file, "case", "mean_2");
    tracefile_meta(&file, "steps", "1");
    tracefile_add(&file, "grad/0001/r00/enc/w", w0, 3);
    tracefile_add(&file, "grad/0001/r01/enc/w", w1, 3);
    tracefile_add(&file, "average/0001/r00/enc/w", w2, 3);
    tracefile_add(&file, "average/0001/r01/enc/w", w2, 3);
    trace = open_valid(&file);
    assert_true(trace->averages);
    assert_int_equal(trace->replicas, 2);
    assert_true(pd_trace_gradient(trace, 1, 1, param_named(trace, "0001/enc/w"), at));
    assert_memory_equal(at, w1, sizeof w1);
    assert_true(pd_trace_average(trace, 1, 1, 0, recorded) && recorded[0] == 7);
    pd_trace_close(trace);
}

TEST(refuses_a_file_that_is_not_there)
{
    pd_trace *trace;
    pd_error err;

    assert_int_equal(pd_trace_open(&trace, "/nonexistent/x.safetensors", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/x.safetensors"));
}

TEST(refuses_a_folder)
{
    pd_trace *trace;

    assert_int_equal(pd_trace_open(&trace, "/tmp", NULL), PD_INVALID_ARGUMENT);
}

TEST(refuses_every_beginning_of_a_valid_file)
{
    tracefile file = valid_file();
    char path[64];
    pd_trace *trace;

    tracefile_write(&file, path);
    FILE *whole = fopen(path, "rb");
    assert_non_null(whole);
    fseek(whole, 0, SEEK_END);
    long size = ftell(whole);
    fclose(whole);
    while (size-- > 0) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_not_equal(pd_trace_open(&trace, path, NULL), PD_OK);
    }
    unlink(path);
}

TEST(refuses_a_file_without_system)
{
    tracefile file = valid_file();

    file.meta[0].key = "other";
    assert_refused(&file, PD_INVALID_ARGUMENT, "no system");
}

TEST(refuses_a_case_that_would_write_on_the_terminal)
{
    tracefile file = valid_file();

    tracefile_meta(&file, "case", "\x1b[2Jx");
    assert_refused(&file, PD_INVALID_ARGUMENT, "case");
}

TEST(refuses_steps_that_are_no_number_in_range)
{
    static const char *const bad[] = { "many", "10000", "-1", "2x", "nan", "", "0" };
    tracefile file = valid_file();

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tracefile_meta(&file, "steps", bad[i]);
        assert_refused(&file, PD_INVALID_ARGUMENT, "steps");
    }
}

static void assert_config_refused(const tracefile *file, const char *part_of_text)
{
    pd_trace *trace = open_valid(file);
    const json_t *config;
    pd_error err;

    assert_int_equal(pd_trace_config(trace, &config, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, part_of_text));
    pd_trace_close(trace);
}

TEST(refuses_a_config_that_is_no_json_object)
{
    tracefile file = valid_file();

    tracefile_meta(&file, "config", "{\"lr\": ");
    assert_config_refused(&file, "config is not JSON");
    tracefile_meta(&file, "config", "[1]");
    assert_config_refused(&file, "object");
}

TEST(refuses_a_gradient_without_a_parameter)
{
    tracefile file = valid_file();

    tracefile_add(&file, "grad/0001/stranger", gw, 3);
    assert_refused(&file, PD_INVALID_ARGUMENT, "grad/0001/stranger");
}

TEST(refuses_a_gradient_of_another_shape)
{
    tracefile file = valid_file();

    file.entry[2].shape.dim[0] = 2;
    file.entry[2].bytes = 8;
    assert_refused(&file, PD_INVALID_ARGUMENT, "grad/0001/w has shape (2,)");
}

TEST(refuses_a_step_beyond_the_last)
{
    tracefile file = valid_file();

    tracefile_add(&file, "grad/0003/w", gw, 3);
    assert_refused(&file, PD_INVALID_ARGUMENT, "2 steps");
}

TEST(refuses_weights_that_are_missing_at_a_step)
{
    tracefile file = valid_file();

    file.n--; /* param/0002/b */
    assert_refused(&file, PD_INVALID_ARGUMENT, "missing");
}

TEST(refuses_param_steps_that_are_no_steps)
{
    tracefile file = valid_file();

    tracefile_meta(&file, "param_steps", "[1, 3]");
    assert_refused(&file, PD_INVALID_ARGUMENT, "param_steps");
    tracefile_meta(&file, "param_steps", "[\"x\"]");
    assert_refused(&file, PD_INVALID_ARGUMENT, "param_steps");
}

TEST(refuses_elements_that_are_no_numbers)
{
    tracefile file = valid_file();

    file.entry[2].dtype = PD_ST_BOOL;
    file.entry[2].bytes = 3;
    assert_refused(&file, PD_INVALID_ARGUMENT, "BOOL");
}

TEST(refuses_a_table_of_rates_that_is_too_short)
{
    static const float rates[1] = { 1 };
    tracefile file = valid_file();

    tracefile_add(&file, "table/learning_rate", rates, 1);
    assert_refused(&file, PD_INVALID_ARGUMENT, "step 2");
}

TEST(refuses_a_file_without_parameters)
{
    tracefile file = valid_file();

    file.n = 0;
    tracefile_add(&file, "values/r00", gw, 3);
    assert_refused(&file, PD_UNIMPLEMENTED, "param/0000/NAME");
}
