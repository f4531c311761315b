/* Tests that a run without recorded gradients is judged by the losses of its network. */
#include "test.h"
#include "replay.h"
#include "replay_net.h"
#include "tracefile.h"

/* A network with 3 inputs, 2 hidden units and 2 classes. 4 examples, 2 steps, batches of 2. */
static const float w0[6] = { .5f, -.25f, 1, -1, .75f, .25f }, b0[2] = { .1f, .2f }, w1[4] = { 1, -.5f, .3f, .8f },
                   b1[2] = { 0, -.1f };
static const float examples[12] = { 1, 0, 2, .5f, 1, 0, 0, 3, 1, 1, 1, 1 };
static const int64_t labels[4] = { 0, 1, 1, 0 }, batches[4] = { 0, 1, 2, 0 };

static void add_matrix(tracefile *file, const char *name, pd_st_dtype dtype, const void *at, int64_t rows,
                       int64_t columns)
{
    tracefile_add_typed(file, name, dtype, at, rows * columns);
    file->entry[file->n - 1].shape = (pd_shape){ .rank = 2, .dim = { rows, columns } };
}

static tracefile net_file(const float *loss)
{
    static char seed[32];
    tracefile file = tracefile_of("torch_optim", "by_loss", "2", "{\"optimizer\": \"SGD\", \"lr\": 0.5}");

    snprintf(seed, sizeof seed, "%ld", (long)getpid());
    tracefile_meta(&file, "param_steps", "[]");
    tracefile_meta(&file, "batch_seed", seed);
    add_matrix(&file, "param/0000/layers.0.weight", PD_ST_F32, w0, 2, 3);
    tracefile_add(&file, "param/0000/layers.0.bias", b0, 2);
    add_matrix(&file, "param/0000/layers.2.weight", PD_ST_F32, w1, 2, 2);
    tracefile_add(&file, "param/0000/layers.2.bias", b1, 2);
    tracefile_add(&file, "loss", loss, 2);
    return file;
}

static tracefile data_file(void)
{
    tracefile file = { 0 };

    tracefile_meta(&file, "system", "data");
    tracefile_meta(&file, "case", "examples");
    tracefile_meta(&file, "steps", "2");
    add_matrix(&file, "x", PD_ST_F32, examples, 4, 3);
    tracefile_add_typed(&file, "y", PD_ST_I64, labels, 4);
    add_matrix(&file, "batch_index", PD_ST_I64, batches, 2, 2);
    return file;
}

/* Writes the network's data to the file name under which a replay of the trace looks for it. */
static void put_beside(const tracefile *data, char name[96])
{
    char path[64];

    tracefile_write(data, path);
    snprintf(name, 96, "/tmp/digits_batches_seed%ld.safetensors", (long)getpid());
    assert_int_equal(rename(path, name), 0);
}

static void open_beside(const tracefile *data, pd_trace **trace, pd_replay_net **net)
{
    static const float none[2] = { 0 };
    tracefile file = net_file(none);
    char path[64], beside[96];
    pd_error err;

    put_beside(data, beside);
    tracefile_write(&file, path);
    assert_int_equal(pd_trace_open(trace, path, NULL), PD_OK);
    assert_int_equal(pd_trace_check(*trace, NULL), PD_OK);
    assert_true(pd_replay_net_wanted(*trace));
    if (pd_replay_net_open(net, *trace, &err) != PD_OK) fail_msg("%s", err.text);
    unlink(path);
    unlink(beside);
}

/* Weights and gradients, one array per parameter of the trace. */
typedef struct tensors {
    float weight[4][6], gradient[4][6];
    float *weights[4], *gradients[4];
    size_t n[4];
} tensors;

static void load(tensors *t, const pd_trace *trace)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        t->weights[i] = t->weight[i];
        t->gradients[i] = t->gradient[i];
        t->n[i] = (size_t)params[i].elements;
        pd_trace_initial(trace, i, t->weight[i]);
    }
}

TEST(gradients_are_the_slopes_of_the_loss)
{
    static const float h = 1.0f / 1024;
    tracefile data = data_file();
    pd_replay_net *net;
    pd_trace *trace;
    tensors t, moved;

    open_beside(&data, &trace, &net);
    for (int64_t step = 1; step <= 2; step++) {
        load(&t, trace);
        load(&moved, trace);
        pd_replay_net_differentiate(net, step, t.weights, t.gradients);
        for (size_t p = 0; p < 4; p++) {
            for (size_t i = 0; i < t.n[p]; i++) {
                double up, down;
                moved.weight[p][i] = t.weight[p][i] + h;
                up = pd_replay_net_differentiate(net, step, moved.weights, moved.gradients);
                moved.weight[p][i] = t.weight[p][i] - h;
                down = pd_replay_net_differentiate(net, step, moved.weights, moved.gradients);
                moved.weight[p][i] = t.weight[p][i];
                if (fabs((up - down) / (2 * (double)h) - (double)t.gradient[p][i]) > 1e-5)
                    fail_msg("step %d, parameter %zu, element %zu", (int)step, p, i);
            }
        }
    }
    pd_replay_net_close(net);
    pd_trace_close(trace);
}

/* Takes two steps w <- w - 0.5 g without the replay code. `loss` gets the losses before each step. */
static void losses_of_sgd(float loss[2])
{
    tracefile data = data_file();
    pd_replay_net *net;
    pd_trace *trace;
    tensors t;

    open_beside(&data, &trace, &net);
    load(&t, trace);
    for (int64_t step = 1; step <= 2; step++) {
        loss[step - 1] = (float)pd_replay_net_differentiate(net, step, t.weights, t.gradients);
        for (size_t p = 0; p < 4; p++) {
            for (size_t i = 0; i < t.n[p]; i++) t.weight[p][i] -= .5f * t.gradient[p][i];
        }
    }
    pd_replay_net_close(net);
    pd_trace_close(trace);
}

static pd_replay_result replayed(const tracefile *file, const tracefile *data)
{
    pd_replay_result result;
    char path[64], beside[96] = "";

    if (data != NULL) put_beside(data, beside);
    tracefile_write(file, path);
    pd_replay_file(&result, path, &(pd_replay_options){ .local = true });
    unlink(path);
    if (data != NULL) unlink(beside);
    return result;
}

static void assert_outcome(const tracefile *file, const tracefile *data, pd_replay_outcome outcome,
                           const char *part_of_why)
{
    pd_replay_result r = replayed(file, data);

    if (r.outcome != outcome) fail_msg("outcome %d, error %g: %s", r.outcome, r.verdict.error, r.why.text);
    if (strstr(r.why.text, part_of_why) == NULL) fail_msg("\"%s\" does not say \"%s\"", r.why.text, part_of_why);
    assert_false(r.excused);
    pd_replay_result_free(&r);
}

TEST(a_run_with_the_same_losses_is_ok)
{
    tracefile file, data = data_file();
    float loss[2];

    losses_of_sgd(loss);
    file = net_file(loss);
    assert_outcome(&file, &data, PD_REPLAY_OK, "");
}

TEST(a_run_with_other_losses_fails_and_the_step_is_named)
{
    tracefile file, data = data_file();
    pd_replay_result r;
    float loss[2];

    losses_of_sgd(loss);
    loss[1] *= 1.001f;
    file = net_file(loss);
    r = replayed(&file, &data);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_string_equal(r.params[r.verdict.param], "loss");
    assert_true(r.verdict.step == 2 && r.verdict.compared == 2 && fabs(r.verdict.error - 1e-3) < 1e-5);
    pd_replay_result_free(&r);
}

TEST(a_loss_that_is_not_a_number_fails)
{
    static const float loss[2] = { NAN, 1 };
    tracefile file = net_file(loss), data = data_file();

    assert_outcome(&file, &data, PD_REPLAY_FAILED, "");
}

TEST(a_run_without_its_data_is_skipped)
{
    static const float loss[2] = { 1, 1 };
    tracefile file = net_file(loss);

    assert_outcome(&file, NULL, PD_REPLAY_SKIPPED, "there is no data to compute them");
    tracefile_meta(&file, "batch_seed", "../7");
    assert_outcome(&file, NULL, PD_REPLAY_SKIPPED, "nor a batch_seed");
}

TEST(parameters_of_another_network_are_skipped)
{
    static const float loss[2] = { 1, 1 };
    tracefile file = net_file(loss), data = data_file();

    strcpy(file.entry[2].name, "param/0000/layers.0.other");
    assert_outcome(&file, &data, PD_REPLAY_SKIPPED, "dense layers");
    file = net_file(loss);
    file.entry[2].shape = (pd_shape){ .rank = 2, .dim = { 4, 1 } };
    assert_outcome(&file, &data, PD_REPLAY_SKIPPED, "dense layers");
}

TEST(data_that_does_not_fit_is_refused)
{
    static const float loss[2] = { 1, 1 };
    static const int64_t third[4] = { 0, 1, 2, 0 }, beyond[4] = { 0, 1, 4, 0 }, minus[4] = { 0, -1, 1, 0 };
    tracefile file = net_file(loss), data = data_file();

    data.entry[1].at = third;
    assert_outcome(&file, &data, PD_REPLAY_FAILED,
                   "y of the data beside the trace: expected whole numbers below 2, got 2");
    data.entry[1].at = minus;
    assert_outcome(&file, &data, PD_REPLAY_FAILED, "got -1");
    data = data_file();
    data.entry[2].at = beyond;
    assert_outcome(&file, &data, PD_REPLAY_FAILED,
                   "batch_index of the data beside the trace: expected whole numbers below 4, got 4");
    data = data_file();
    data.entry[2].shape = (pd_shape){ .rank = 2, .dim = { 1, 4 } };
    assert_outcome(&file, &data, PD_REPLAY_FAILED, "batches for 2 steps");
    data = data_file();
    data.entry[0].shape = (pd_shape){ .rank = 2, .dim = { 3, 4 } };
    assert_outcome(&file, &data, PD_REPLAY_FAILED, "expected examples of 3 numbers");
    data = data_file();
    strcpy(data.entry[0].name, "z");
    assert_outcome(&file, &data, PD_REPLAY_FAILED, "x of the data beside the trace: expected numbers in 2 dimensions");
}
