/* What the example's rank 0 leaves for machines: the log of steps and the weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "safetensors.h"
#include "weights.h"

static char folder[64], path[128];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/paramd-report-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* The line of that number (from 0) of the log, as JSON. */
static json_t *line(int number)
{
    FILE   *file = fopen(path, "r");
    char    text[256] = "";
    json_t *value;

    assert_non_null(file);
    for (int i = 0; i <= number; i++) assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_non_null(value = json_loads(text, 0, NULL));
    return value;
}

static void each_line_of_the_log_is_json_even_when_training_diverges(void **state)
{
    char    prefix[80];
    report  r;
    json_t *step, *epoch;

    (void)state;
    snprintf(prefix, sizeof prefix, "%s/x", folder);
    snprintf(path, sizeof path, "%s.jsonl", prefix);
    assert_int_equal(report_open(&r, prefix, 0, 2, 2, 256, NULL), PD_OK);
    assert_int_equal(report_step(&r, 1, 2.25, 0.1, NULL), PD_OK);
    assert_int_equal(report_step(&r, 2, (double)NAN, 0.05, NULL), PD_OK);
    assert_int_equal(report_train_loss(&r, 2, 0.5, NULL), PD_OK);
    assert_int_equal(report_train_loss(&r, 2, (double)NAN, NULL), PD_OK);
    assert_int_equal(report_epoch(&r, 2, (double)INFINITY, 0.125, NULL), PD_OK);
    report_close(&r);

    step = line(0);
    assert_true(json_number_value(json_object_get(step, "loss")) == 2.25);
    json_decref(step);
    step = line(1);
    assert_true(json_is_null(json_object_get(step, "loss")));
    json_decref(step);
    step = line(2);
    assert_true(json_number_value(json_object_get(step, "train_loss")) == 0.5);
    assert_int_equal(json_integer_value(json_object_get(step, "step")), 2);
    json_decref(step);
    step = line(3);
    assert_true(json_is_null(json_object_get(step, "train_loss")));
    json_decref(step);
    epoch = line(4);
    assert_true(json_is_null(json_object_get(epoch, "test_loss")));
    assert_true(json_number_value(json_object_get(epoch, "test_accuracy")) == 0.125);
    assert_int_equal(json_integer_value(json_object_get(epoch, "epoch")), 1);
    json_decref(epoch);
}

static void weights_are_read_back_as_they_were(void **state)
{
    const int widths[MLP_LAYERS + 1] = { 5, 4, 3, 2 };
    static char bytes[8192];
    pd_safetensors *read;
    mlp    net;
    FILE  *file;
    size_t n;

    (void)state;
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    assert_int_equal(mlp_new(&net, widths, 1), PD_OK);
    mlp_init(&net, 1);
    assert_int_equal(weights_write(&net, path, NULL), PD_OK);
    assert_non_null(file = fopen(path, "rb"));
    n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(pd_safetensors_read(&read, bytes, n, NULL), PD_OK);
    for (int t = 0; t < MLP_TENSORS; t++) {
        const pd_st_tensor *tensor = pd_safetensors_find(read, mlp_name(t));
        pd_shape shape = mlp_shape(&net, t);
        assert_non_null(tensor);
        assert_true(pd_shape_equal(&tensor->shape, &shape));
        assert_memory_equal(pd_safetensors_data(read, tensor), net.tensor[t], tensor->bytes);
    }
    pd_safetensors_free(read);
    mlp_free(&net);
}

static void a_full_disk_is_an_error_and_leaves_no_half_file(void **state)
{
    const int widths[MLP_LAYERS + 1] = { 5, 4, 3, 2 };
    char     part[160];
    mlp      net;
    pd_error err;

    (void)state;
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(symlink("/dev/full", part), 0);
    assert_int_equal(mlp_new(&net, widths, 1), PD_OK);
    assert_int_equal(weights_write(&net, path, &err), PD_UNAVAILABLE);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
    mlp_free(&net);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(each_line_of_the_log_is_json_even_when_training_diverges),
        CASE(weights_are_read_back_as_they_were),
        CASE(a_full_disk_is_an_error_and_leaves_no_half_file),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
