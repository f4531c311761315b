/* Tests that the state of a parameter's optimizer is cut into portions which step as the parameter does, and joined to
 * the bytes that the parameter had. */
#include "test.h"
#include "lone_step.h"
#include "portion_state.h"
#include "save.h"
#include "state.h"

enum { ROWS = 8, COLUMNS = 6, ELEMENTS = ROWS * COLUMNS, PORTIONS = 3 };

/* First rows of the portions; the last number is that of the rows. */
static const int64_t first[PORTIONS + 1] = { 0, 2, 6, ROWS };

typedef struct setting {
    const char *name, *value;
} setting;

typedef struct recipe {
    const char *row;
    setting settings[10];
} recipe;

static pd_optim *make(const recipe *how, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    double stats[PD_MAX_MODEL_STATS];
    pd_optim *optim;
    pd_error err = { 0 };

    pd_hypers_init(&declaration.hypers, pd_optim_find(how->row));
    for (const setting *s = how->settings; s->name != NULL; s++)
        if (pd_hypers_set(&declaration.hypers, s->name, s->value, &err) != PD_OK) fail_msg("%s", err.text);
    pd_model_stats_of(declaration.hypers.row, &declaration, 1, stats);
    if (pd_optim_new(&optim, &declaration, stats, &err) != PD_OK) fail_msg("%s", err.text);
    return optim;
}

static pd_shape rows(int64_t n)
{
    return (pd_shape){ 2, { n, COLUMNS } };
}

/* Takes the next step with a gradient that depends on the step and the element. `row`: the first row of the weights. */
static void step(pd_optim *optim, int64_t row, int64_t n, float *weights)
{
    float gradient[ELEMENTS];

    for (int64_t i = 0; i < n * COLUMNS; i++)
        gradient[i] = sinf((float)(row * COLUMNS + i + 1) * (float)(pd_optim_count(optim) + 1));
    lone_step(optim, &(pd_step_io){ .gradient = gradient, .before = weights, .after = weights }, 1);
}

/* A whole parameter, and portions of it with the same state and weights. */
typedef struct parameter {
    pd_optim *whole, *portion[PORTIONS];
    float weights[ELEMENTS], cut[ELEMENTS];
} parameter;

static void step_whole(parameter *p, int steps)
{
    for (int i = 0; i < steps; i++) step(p->whole, 0, ROWS, p->weights);
}

static void step_portions(parameter *p, int steps)
{
    for (int i = 0; i < steps; i++)
        for (int k = 0; k < PORTIONS; k++)
            step(p->portion[k], first[k], first[k + 1] - first[k], p->cut + first[k] * COLUMNS);
}

/* Makes the parameter, lets it take steps, and cuts it. */
static void cut(parameter *p, const recipe *how, int steps)
{
    pd_error err = { 0 };

    p->whole = make(how, rows(ROWS));
    for (int i = 0; i < ELEMENTS; i++) p->weights[i] = (float)i / ELEMENTS;
    step_whole(p, steps);
    memcpy(p->cut, p->weights, sizeof p->cut);
    for (int k = 0; k < PORTIONS; k++) {
        p->portion[k] = make(how, rows(first[k + 1] - first[k]));
        pd_optim_unload(p->portion[k]);
        assert_int_equal(pd_optim_load(p->portion[k]), PD_OK);
        if (pd_optim_cut(p->portion[k], p->whole, first[k], &err) != PD_OK) fail_msg("%s: %s", how->row, err.text);
    }
}

static void release(parameter *p)
{
    pd_optim_free(p->whole);
    for (int k = 0; k < PORTIONS; k++) pd_optim_free(p->portion[k]);
}

static uint8_t *image_of(pd_optim *optim, size_t *n)
{
    pd_archive archive;
    uint8_t *image;

    pd_archive_begin_write(&archive);
    pd_optim_visit(&archive, optim);
    assert_int_equal(pd_archive_end(&archive, &image, n, NULL), PD_OK);
    return image;
}

/* Joins the portions, and expects the bytes that the whole parameter has by then. */
static void expect_joined(parameter *p, const recipe *how)
{
    pd_optim *joined = make(how, rows(ROWS));
    uint8_t *one, *other;
    size_t n, m;
    pd_error err = { 0 };

    pd_optim_unload(joined);
    assert_int_equal(pd_optim_load(joined), PD_OK);
    for (int k = 0; k < PORTIONS; k++)
        if (pd_optim_join(joined, p->portion[k], first[k], &err) != PD_OK) fail_msg("%s: %s", how->row, err.text);
    one = image_of(p->whole, &n);
    other = image_of(joined, &m);
    assert_int_equal(n, m);
    assert_memory_equal(one, other, n);
    free(one);
    free(other);
    pd_optim_free(joined);
}

/* Cuts a parameter after each number of steps, and expects that parameter and portions go on alike. */
static void expect_alike(const recipe *how)
{
    for (int steps = 0; steps < 7; steps++) {
        parameter p = { 0 };
        cut(&p, how, steps);
        step_whole(&p, 4);
        step_portions(&p, 4);
        assert_memory_equal(p.weights, p.cut, sizeof p.weights);
        expect_joined(&p, how);
        release(&p);
    }
}

TEST(slots_of_elements_are_cut_along_their_rows)
{
    expect_alike(&(recipe){ "sgd", { { "momentum", "0.9" } } });
    expect_alike(&(recipe){ "adamw", { { "amsgrad", "yes" } } });
    expect_alike(&(recipe){ "delayed_nesterov", { { "period", "3" } } });
    expect_alike(&(recipe){ "rprop", { { NULL, NULL } } });
}

TEST(numbers_are_the_same_in_all_portions)
{
    expect_alike(&(recipe){ "nadam", { { NULL, NULL } } });
    expect_alike(&(recipe){ "asgd", { { "t0", "2" } } });
}

/* The roots of step 2 are adopted in step 4, and so on: some are pending whenever the parameter is cut. */
static const recipe blocks = { "shampoo",
                               { { "max_preconditioner_dim", "2" },
                                 { "precondition_frequency", "2" },
                                 { "start_preconditioning_step", "2" },
                                 { "use_merge_dims", "no" },
                                 { "momentum", "0.9" },
                                 { "root_delay", "2" } } };

TEST(blocks_and_pending_roots_go_to_their_portions)
{
    expect_alike(&blocks);
}

TEST(bases_and_moments_in_them_go_to_their_portions)
{
    expect_alike(
        &(recipe){ "soap", { { "block_size", "2" }, { "precondition_frequency", "2" }, { "root_delay", "1" } } });
    expect_alike(
        &(recipe){ "kl_shampoo", { { "block_size", "2" }, { "precondition_frequency", "2" }, { "root_delay", "1" } } });
    expect_alike(&(recipe){ "ademamix", { { NULL, NULL } } });
    expect_alike(&(recipe){ "schedule_free", { { "inner_momentum", "0.9" } } });
}

/* Optimizers with blocks have tests of their own above: by default their blocks are larger than these portions. */
TEST(every_optimizer_that_may_be_cut_is_known_here)
{
    for (size_t i = 0; pd_optimizer_table[i] != NULL; i++) {
        const pd_optimizer_ops *ops = pd_optimizer_table[i];
        if (ops->grain == pd_grain_of_elements)
            expect_alike(&(recipe){ ops->name, { { NULL, NULL } } });
        else if (ops->grain != NULL && strcmp(ops->name, "shampoo") != 0 && strcmp(ops->name, "soap") != 0 &&
                 strcmp(ops->name, "kl_shampoo") != 0)
            fail_msg("%s has a grain, and no test that cuts its state", ops->name);
    }
}

TEST(slots_in_half_precision_are_cut_as_they_are_stored)
{
    expect_alike(&(recipe){ "shampoo",
                            { { "max_preconditioner_dim", "2" },
                              { "precondition_frequency", "1" },
                              { "use_merge_dims", "no" },
                              { "momentum", "0.9" },
                              { "precision_config.momentum_dtype", "bfloat16" },
                              { "precision_config.factor_matrix_dtype", "float64" },
                              { "precision_config.inv_factor_matrix_dtype", "bfloat16" },
                              { "precision_config.filtered_grad_dtype", "float16" } } });
}

TEST(a_portion_may_be_the_whole_parameter)
{
    static const recipe whole = { "kron", { { "preconditioner_update_probability", "1" } } };
    pd_optim *from = make(&whole, rows(ROWS)), *to = make(&whole, rows(ROWS));
    float weights[ELEMENTS] = { 1 };
    uint8_t *one, *other;
    size_t n, m;

    for (int i = 0; i < 3; i++) step(from, 0, ROWS, weights);
    assert_int_equal(pd_optim_cut(to, from, 0, NULL), PD_OK);
    one = image_of(from, &n);
    other = image_of(to, &m);
    assert_int_equal(n, m);
    assert_memory_equal(one, other, n);
    free(one);
    free(other);
    pd_optim_free(from);
    pd_optim_free(to);
}

TEST(portions_that_have_gone_different_ways_are_not_joined)
{
    static const recipe nadam = { "nadam", { { NULL, NULL } } };
    parameter p = { 0 };
    pd_optim *joined = make(&nadam, rows(ROWS));
    pd_error err = { 0 };

    cut(&p, &nadam, 2);
    step(p.portion[1], first[1], first[2] - first[1], p.cut);
    assert_int_equal(pd_optim_join(joined, p.portion[0], first[0], &err), PD_OK);
    assert_int_equal(pd_optim_join(joined, p.portion[1], first[1], &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "have counted 2 and 3 steps"));
    p.portion[1]->saved.count--;
    assert_int_equal(pd_optim_join(joined, p.portion[1], first[1], &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "mu_product"));
    pd_optim_free(joined);
    release(&p);
}

TEST(a_cut_across_blocks_is_refused)
{
    pd_optim *whole = make(&blocks, rows(ROWS)), *portion = make(&blocks, rows(4));
    pd_error err = { 0 };

    assert_int_equal(pd_optim_cut(portion, whole, 1, &err), PD_INTERNAL);
    assert_int_equal(pd_optim_cut(portion, whole, 6, &err), PD_INTERNAL);
    assert_int_equal(pd_optim_cut(portion, whole, 4, &err), PD_OK);
    pd_optim_free(whole);
    pd_optim_free(portion);
}

TEST(state_with_scales_of_columns_is_not_cut)
{
    static const recipe columns = { "scalable_shampoo", { { "best_effort_memory_usage_reduction", "yes" } } };
    pd_optim *whole = make(&columns, rows(ROWS)), *portion = make(&columns, rows(4));
    pd_error err = { 0 };

    assert_int_equal(pd_optim_cut(portion, whole, 4, &err), PD_INTERNAL);
    pd_optim_free(whole);
    pd_optim_free(portion);
}
