/* Replays every recorded run of torch.optim.SGD in $PARAMD_GOLDEN/torch_optim through the optimizer library: one test a trace. Each parameter's
 * weights may differ from the recorded ones by 10 times the trace's own noise (float32 against float64) and 1e-6, relative to their norm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "paramd/optim.h"
#include "golden.h"
#include "safetensors.h"

enum { MOST_PARAMS = 16 };

typedef struct trace {
    void           *bytes;
    pd_safetensors *file;
    json_t         *config;
    double          tolerance;
    int             n, steps;
    pd_declaration  param[MOST_PARAMS];
    float          *weights[MOST_PARAMS];       /* ours */
    float          *recorded[MOST_PARAMS], *gradient[MOST_PARAMS];
} trace;

static void *read_file(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");
    void *bytes;
    long length;

    if (in == NULL) fail_msg("cannot read %s", path);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    length = ftell(in);
    rewind(in);
    bytes = malloc((size_t)length);
    assert_int_equal(fread(bytes, 1, (size_t)length, in), (size_t)length);
    fclose(in);
    *n = (size_t)length;
    return bytes;
}

/* True: the trace has that tensor, now in `to`. */
static bool load(const trace *t, float *to, const char *kind, int step, int p)
{
    char name[320];
    const pd_st_tensor *tensor;

    snprintf(name, sizeof name, "%s/%04d/%s", kind, step, t->param[p].name);
    if ((tensor = pd_safetensors_find(t->file, name)) == NULL) return false;
    assert_int_equal(tensor->dtype, PD_ST_F32);
    assert_true(pd_shape_equal(&tensor->shape, &t->param[p].shape));
    memcpy(to, pd_safetensors_data(t->file, tensor), tensor->bytes);
    return true;
}

/* Every key of the recorded configuration that is a hyperparameter of ours, by the same name; the others say how torch computes, not what. */
static void configure(trace *t, pd_hypers *hypers)
{
    static const char *const about_torch[] = { "optimizer", "foreach", "differentiable", "fused" };
    const char *key;
    json_t *value;
    pd_error err;

    pd_hypers_init(hypers, pd_optim_find("sgd"));
    json_object_foreach(t->config, key, value) {
        char text[64];
        bool ours = true;
        for (size_t i = 0; i < sizeof about_torch / sizeof about_torch[0]; i++) ours &= strcmp(key, about_torch[i]) != 0;
        if (!ours) continue;
        snprintf(text, sizeof text, "%.17g", json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value));
        if (pd_hypers_set(hypers, key, text, &err) != PD_OK) fail_msg("%s", err.text);
    }
    if (pd_hypers_check(hypers, &err) != PD_OK) fail_msg("%s", err.text);
}

static void open_trace(trace *t, const char *path)
{
    size_t bytes, n;
    const pd_st_tensor *tensor;
    pd_error err;

    memset(t, 0, sizeof *t);
    t->bytes = read_file(path, &bytes);
    if (pd_safetensors_read(&t->file, t->bytes, bytes, &err) != PD_OK) fail_msg("%s: %s", path, err.text);
    assert_non_null(t->config = json_loads(pd_safetensors_meta(t->file, "config"), 0, NULL));
    t->steps = atoi(pd_safetensors_meta(t->file, "steps"));
    t->tolerance = 10 * atof(pd_safetensors_meta(t->file, "noise")) + 1e-6;
    tensor = pd_safetensors_tensors(t->file, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t elements = 0;
        if (strncmp(tensor[i].name, "param/0000/", 11) != 0) continue;
        assert_true(t->n < MOST_PARAMS && pd_shape_elements(&tensor[i].shape, &elements) == PD_OK);
        t->param[t->n] = (pd_declaration){ .name = tensor[i].name + 11, .shape = tensor[i].shape };
        configure(t, &t->param[t->n].hypers);
        t->weights[t->n] = malloc((size_t)elements * sizeof(float));
        t->recorded[t->n] = malloc((size_t)elements * sizeof(float));
        t->gradient[t->n] = malloc((size_t)elements * sizeof(float));
        assert_true(load(t, t->weights[t->n], "param", 0, t->n));
        t->n++;
    }
    assert_true(t->n > 0 && t->steps > 0);
}

static void close_trace(trace *t)
{
    for (int p = 0; p < t->n; p++) {
        free(t->weights[p]);
        free(t->recorded[p]);
        free(t->gradient[p]);
    }
    json_decref(t->config);
    pd_safetensors_free(t->file);
    free(t->bytes);
}

/* |a - b| / |b| over what is finite; what is not must coincide. Infinite: it does not. */
static double relative_error(const float *a, const float *b, int64_t n)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i];
        if (!isfinite(x) || !isfinite(y)) {
            if (x == y || (isnan(x) && isnan(y))) continue;
            return INFINITY;
        }
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static int compare(const trace *t, int step, double *worst)
{
    int compared = 0;

    for (int p = 0; p < t->n; p++) {
        int64_t n = 0;
        double error;
        if (!load(t, t->recorded[p], "param", step, p)) continue;
        (void)pd_shape_elements(&t->param[p].shape, &n);
        error = relative_error(t->weights[p], t->recorded[p], n);
        if (error > *worst) *worst = error;
        if (!(error <= t->tolerance)) fail_msg("step %d, %s: off by %.3g, tolerance %.3g", step, t->param[p].name, error, t->tolerance);
        compared++;
    }
    return compared;
}

static void agrees_with_torch(void **state)
{
    trace t;
    pd_model *model;
    pd_error err;
    double worst = 0;
    int compared = 0;

    open_trace(&t, *state);
    if (pd_model_new(&model, t.param, (size_t)t.n, 2, &err) != PD_OK) fail_msg("%s", err.text);
    for (int step = 1; step <= t.steps; step++) {
        pd_step_io io[MOST_PARAMS];
        for (int p = 0; p < t.n; p++)
            io[p] = (pd_step_io){ load(&t, t.gradient[p], "grad", step, p) ? t.gradient[p] : NULL, t.weights[p], t.weights[p], NULL, 0, NULL };
        assert_int_equal(pd_model_step(model, io, &err), PD_OK);
        compared += compare(&t, step, &worst);
    }
    assert_true(compared > 0);
    print_message("%d steps, %d comparisons, largest error %.2e, tolerance %.2e\n", t.steps, compared, worst, t.tolerance);
    pd_model_free(model);
    close_trace(&t);
}

static bool is_of_sgd(const char *path)
{
    size_t n;
    void *bytes = read_file(path, &n);
    pd_safetensors *file = NULL;
    const char *config;
    bool yes;

    assert_int_equal(pd_safetensors_read(&file, bytes, n, NULL), PD_OK);
    config = pd_safetensors_meta(file, "config");
    yes = config != NULL && strstr(config, "\"optimizer\": \"SGD\"") != NULL;
    pd_safetensors_free(file);
    free(bytes);
    return yes;
}

int main(void)
{
    return golden_folder("torch_optim", agrees_with_torch, is_of_sgd, NULL, NULL);
}
