/* Tests a model whose gradients are clipped by their global norm: pd_model_clip, and optimizers with a clipping
 * limit of their own. */
#include "test.h"
#include "clip.h"
#include "clipped.h"

enum { N = 3, MOST = PD_CLIP_RANGE * 65 };
static const int64_t sizes[N] = { 5, 1, 70 };

static pd_declaration declared(const char *name, int64_t n, const pd_optimizer_ops *row, int group, double limit)
{
    pd_declaration d = { .name = name, .shape = { 1, { (uint64_t)n } }, .group = group };

    pd_hypers_init(&d.hypers, row);
    d.hypers.value[pd_hypers_find(row, "lr")] = 1;
    if (row == limited_row()) d.hypers.value[pd_hypers_find(row, "dampening")] = limit;
    return d;
}

/* Takes one step from zero weights. The gradient of parameter i is first[i] followed by zeros. Sets moved[i] to the
 * distance that the first weight of parameter i has moved. */
static void step(pd_model *model, size_t n, const float *first, const bool *absent, float *moved)
{
    float zero[80] = { 0 }, after[N][80] = { { 0 } }, gradient[N][80] = { { 0 } };
    pd_step_io io[N] = { { 0 } };
    pd_error err;

    for (size_t i = 0; i < n; i++) {
        gradient[i][0] = first[i];
        io[i] = (pd_step_io){ .gradient = absent != NULL && absent[i] ? NULL : gradient[i],
                              .before = zero,
                              .after = after[i] };
    }
    assert_int_equal(pd_model_step(model, io, &err), PD_OK);
    for (size_t i = 0; i < n; i++) {
        moved[i] = -after[i][0];
        assert_memory_equal(gradient[i], &first[i], sizeof first[i]);
    }
}

static pd_model *make(const pd_declaration *params, size_t n)
{
    pd_model *model;
    pd_error err;

    assert_int_equal(pd_model_new(&model, params, n, 2, &err), PD_OK);
    return model;
}

TEST(all_are_clipped_together)
{
    const pd_optimizer_ops *sgd = pd_optim_find("sgd");
    pd_declaration params[N] = { declared("a", sizes[0], sgd, 0, 0), declared("b", sizes[1], sgd, 1, 0),
                                 declared("c", sizes[2], sgd, 0, 0) };
    pd_model *model = make(params, N);
    float moved[N];

    step(model, N, (float[]){ 6, 0, 8 }, NULL, moved);
    assert_true(moved[0] == 6 && moved[2] == 8 && pd_model_norm(model) == 0);
    assert_int_equal(pd_model_clip(model, 5, NULL), PD_OK);
    step(model, N, (float[]){ 6, 0, 8 }, NULL, moved);
    assert_true(moved[0] == 3 && moved[1] == 0 && moved[2] == 4);
    assert_true(pd_model_norm(model) == 10);
    step(model, N, (float[]){ 0, 3, 0 }, NULL, moved);
    assert_true(moved[1] == 3 && pd_model_norm(model) == 3);
    assert_int_equal(pd_model_clip(model, 0, NULL), PD_OK);
    step(model, N, (float[]){ 6, 0, 8 }, NULL, moved);
    assert_true(moved[0] == 6);
    pd_model_free(model);
}

TEST(what_has_no_gradient_has_no_part)
{
    const pd_optimizer_ops *sgd = pd_optim_find("sgd");
    pd_declaration params[N] = { declared("a", sizes[0], sgd, 0, 0), declared("b", sizes[1], values_row(), 0, 0),
                                 declared("c", sizes[2], sgd, 0, 0) };
    pd_model *model = make(params, N);
    float moved[N];

    assert_int_equal(pd_model_clip(model, 1, NULL), PD_OK);
    step(model, N, (float[]){ 2, 50, 8 }, (bool[]){ false, false, true }, moved);
    assert_true(moved[0] == 1 && moved[1] == 50 && moved[2] == 0);
    assert_true(pd_model_norm(model) == 2);
    step(model, N, (float[]){ 2, 50, 8 }, (bool[]){ true, true, true }, moved);
    assert_true(moved[0] == 0 && moved[1] == 0 && moved[2] == 0);
    pd_model_free(model);
}

TEST(a_rows_limit_is_of_one_row_and_group)
{
    pd_declaration params[N] = { declared("a", sizes[0], limited_row(), 7, 5),
                                 declared("b", sizes[1], limited_row(), 3, 1),
                                 declared("c", sizes[2], limited_row(), 7, 5) };
    pd_model *model = make(params, N);
    float moved[N];

    step(model, N, (float[]){ 6, 4, 8 }, NULL, moved);
    assert_true(moved[0] == 3 && moved[1] == 1 && moved[2] == 4);
    assert_true(pd_model_norm(model) == 10);
    pd_model_free(model);
}

TEST(the_models_limit_comes_before_the_rows)
{
    pd_declaration params[2] = { declared("a", sizes[0], limited_row(), 0, 1),
                                 declared("b", sizes[1], pd_optim_find("sgd"), 0, 0) };
    pd_model *model = make(params, 2);
    float moved[2];

    assert_int_equal(pd_model_clip(model, 5, NULL), PD_OK);
    step(model, 2, (float[]){ 8, 6 }, NULL, moved);
    assert_true(moved[0] == 1 && moved[1] == 3 && pd_model_norm(model) == 10);
    pd_model_free(model);
}

TEST(one_that_is_not_a_number_makes_all_so)
{
    pd_declaration params[2] = { declared("a", sizes[0], limited_row(), 0, 1),
                                 declared("b", sizes[1], limited_row(), 0, 1) };
    pd_model *model = make(params, 2);
    float moved[2];

    step(model, 2, (float[]){ NAN, 6 }, NULL, moved);
    assert_true(isnan(moved[0]) && isnan(moved[1]) && isnan(pd_model_norm(model)));
    step(model, 2, (float[]){ 4, 0 }, NULL, moved);
    assert_true(moved[0] == 1);
    pd_model_free(model);
}

TEST(one_limit_is_wanted_of_a_group)
{
    pd_declaration params[2] = { declared("a", sizes[0], limited_row(), 0, 1),
                                 declared("b", sizes[1], limited_row(), 0, 2) };
    pd_model *model;
    pd_error err;

    assert_int_equal(pd_model_new(&model, params, 2, 1, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(
        err.text, "parameter b: gradients of its group are clipped at the norm 2, but by a at 1: expected one limit");
}

TEST(limits_that_mean_nothing_are_refused)
{
    static const double bad[] = { -1, 1e-31, 1e31, NAN, INFINITY };
    pd_declaration param = declared("a", sizes[0], pd_optim_find("sgd"), 0, 0);
    pd_model *model = make(&param, 1);
    float moved[1];

    assert_int_equal(pd_model_clip(model, 1, NULL), PD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(pd_model_clip(model, bad[i], NULL), PD_OUT_OF_RANGE);
    step(model, 1, (float[]){ 4 }, NULL, moved);
    assert_true(moved[0] == 1);
    pd_model_free(model);
}

/* The gradient has more elements than one call of the norm computation takes. */
TEST(a_large_gradient_is_clipped_whole_with_any_threads)
{
    pd_declaration param = declared("a", MOST, pd_optim_find("sgd"), 0, 0);
    float *gradient = malloc(MOST * sizeof *gradient), *zero = calloc(MOST, sizeof *zero), *after[3];
    pd_error err;

    for (int64_t i = 0; i < MOST; i++) gradient[i] = (float)(i % 1000 + 1);
    for (int k = 0; k < 3; k++) {
        pd_model *model;
        pd_step_io io = { .gradient = gradient, .before = zero, .after = after[k] = malloc(MOST * sizeof **after) };
        assert_int_equal(pd_model_new(&model, &param, 1, k + 1, &err), PD_OK);
        assert_int_equal(pd_model_clip(model, 1, &err), PD_OK);
        assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
        pd_model_free(model);
    }
    for (int64_t i = 0; i < MOST; i++)
        assert_true(after[0][i] == after[0][0] * gradient[i] ||
                    fabsf(after[0][i] / gradient[i] / after[0][0] - 1) < 2e-7f);
    assert_memory_equal(after[0], after[1], MOST * sizeof **after);
    assert_memory_equal(after[0], after[2], MOST * sizeof **after);
    for (int k = 0; k < 3; k++) free(after[k]);
    free(gradient);
    free(zero);
}

TEST(without_memory_nothing_changes)
{
    pd_declaration params[2] = { declared("a", sizes[0], limited_row(), 0, 1),
                                 declared("b", sizes[2], pd_optim_find("sgd"), 0, 0) };
    pd_model *model;
    float moved[2];
    int rc;

    for (int64_t n = 0;; n++) {
        oom_arm(n);
        rc = pd_model_new(&model, params, 2, 1, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    assert_int_equal(rc, PD_OK);
    for (int64_t n = 0;; n++) {
        oom_arm(n);
        rc = pd_model_clip(model, 5, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        step(model, 2, (float[]){ 8, 6 }, NULL, moved);
        assert_true(moved[0] == 1 && moved[1] == 6);
    }
    assert_int_equal(rc, PD_OK);
    step(model, 2, (float[]){ 8, 6 }, NULL, moved);
    assert_true(moved[1] == 3);
    pd_model_free(model);
}
