/* vectors.c - steps vectors of pseudo-random numbers with optimizers of the table. */
#include "vectors.h"

#include "test.h"

const char *const vectors_rows[VECTORS_ROWS] = {
    "adam",
    "adamw",
    "adagrad",
    "rmsprop",
    "nadam",
    "radam",
    "adamax",
    "adadelta",
    "rprop",
    "asgd",
    "lamb",
    "lion",
    "delayed_nesterov",
    "ademamix",
    "schedule_free",
    "schedule_free_sgd",
    "gpa",
};

pd_hypers vectors_hypers(const char *row, const char *const *options)
{
    pd_hypers hypers;
    pd_error err;

    pd_hypers_init(&hypers, pd_optim_find(row));
    for (; options[0] != NULL; options += 2)
        if (pd_hypers_set(&hypers, options[0], options[1], &err) != PD_OK) fail_msg("%s", err.text);
    return hypers;
}

bool vectors_has(const char *row, const char *hyper)
{
    return pd_hypers_find(pd_optim_find(row), hyper) >= 0;
}

double vectors_value(const pd_hypers *h, const char *name)
{
    int i = pd_hypers_find(h->row, name);
    return i < 0 ? 0 : h->value[i];
}

pd_model *vectors_model(const pd_hypers *hypers, const int64_t *n, size_t count, int threads)
{
    pd_declaration params[4];
    pd_model *model;
    pd_error err;

    for (size_t i = 0; i < count; i++)
        params[i] = (pd_declaration){ .name = "w", .shape = { 1, { n[i] } }, .hypers = *hypers };
    if (pd_model_new(&model, params, count, threads, &err) != PD_OK) fail_msg("%s", err.text);
    return model;
}

pd_model *vectors_model_of(const pd_hypers *hypers, pd_shape shape, int threads)
{
    pd_declaration param = { .name = "w", .shape = shape, .hypers = *hypers };
    pd_model *model;
    pd_error err;

    if (pd_model_new(&model, &param, 1, threads, &err) != PD_OK) fail_msg("%s", err.text);
    return model;
}

void vectors_step(pd_model *model, const float *gradient, const float *before, float *after, const pd_hypers *now)
{
    pd_step_io io = { .gradient = gradient, .before = before, .after = after };

    if (now != NULL) io.hypers = now->value, io.hypers_mask = ~(uint64_t)0;
    assert_int_equal(pd_model_step(model, &io, NULL), PD_OK);
}

static float noise(int64_t i, int t)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)t * 0xbf58476d1ce4e5b9u + 1;

    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return (float)((double)(x >> 40) / 8388608.0 - 1);
}

void vectors_fill(float *at, int64_t n, int t)
{
    for (int64_t i = 0; i < n; i++) at[i] = noise(i, t);
}

void vectors_check_threads(const pd_hypers *hypers, pd_shape shape)
{
    pd_model *models[3];
    float *w[3], *other, *gradient;
    int64_t n;
    size_t bytes;

    pd_shape_elements(&shape, &n);
    bytes = (size_t)n * sizeof(float);
    other = malloc(bytes);
    gradient = malloc(bytes);
    for (int i = 0; i < 3; i++) {
        models[i] = vectors_model_of(hypers, shape, i + 1);
        w[i] = malloc(bytes);
        vectors_fill(w[i], n, 0);
    }
    for (int s = 1; s <= 2; s++) {
        vectors_fill(gradient, n, s);
        vectors_step(models[0], gradient, w[0], w[0], NULL);
        vectors_step(models[1], gradient, w[1], w[1], NULL);
        vectors_step(models[2], gradient, w[2], other, NULL);
        memcpy(w[2], other, bytes);
    }
    for (int i = 1; i < 3; i++) assert_memory_equal(w[0], w[i], bytes);
    for (int i = 0; i < 3; i++) {
        pd_model_free(models[i]);
        free(w[i]);
    }
    free(other);
    free(gradient);
}

void vectors_slot(const pd_model *model, const char *slot, float *out, int64_t n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    pd_error err;

    assert_non_null(wide);
    if (pd_model_read_part(model, 0, slot, -1, -1, wide, n, &err) != PD_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < n; i++) out[i] = (float)wide[i];
    free(wide);
}
