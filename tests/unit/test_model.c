/* Tests pd_model: optimizers of several parameters, used without the daemon. */
#include "test.h"
#include "coupled_row.h"
#include "paramd/optim.h"

enum { PARAMS = 4, ELEMENTS = 35 };

typedef struct fixture {
    pd_declaration params[PARAMS]; /* their optimizers: sgd, coupled_row (which has every feature), sgd, coupled_row */
    float weights[PARAMS][ELEMENTS], gradient[PARAMS][ELEMENTS];
    pd_step_io io[PARAMS];
    pd_model *model;
} fixture;

static void fill(fixture *f)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < ELEMENTS; i++) {
            f->weights[p][i] = cosf((float)(p + i));
            f->gradient[p][i] = sinf((float)(p * 7 + i));
        }
}

static void set_up(fixture *f)
{
    for (int p = 0; p < PARAMS; p++) {
        f->params[p] = (pd_declaration){ .name = "w", .shape = { 2, { 7, 5 } } };
        pd_hypers_init(&f->params[p].hypers, p % 2 == 0 ? pd_optim_find("sgd") : &coupled_row);
        if (p % 2 == 0) { /* dampening has no effect in step 1, so step 1 differs from later steps */
            assert_int_equal(pd_hypers_set(&f->params[p].hypers, "momentum", "0.9", NULL), PD_OK);
            assert_int_equal(pd_hypers_set(&f->params[p].hypers, "dampening", "0.5", NULL), PD_OK);
        }
        f->io[p] = (pd_step_io){ .gradient = f->gradient[p], .before = f->weights[p], .after = f->weights[p] };
    }
    fill(f);
    assert_int_equal(pd_model_new(&f->model, f->params, PARAMS, 2, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    pd_model_free(f->model);
}

FIXTURE(fixture, set_up, tear_down);

TEST(steps_parameters_of_different_rows_together, fixture *f)
{
    float together[PARAMS][ELEMENTS];

    for (int s = 0; s < 4; s++) assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    memcpy(together, f->weights, sizeof together);
    fill(f);
    for (int p = 0; p < PARAMS; p++) {
        pd_model *alone;
        assert_int_equal(pd_model_new(&alone, &f->params[p], 1, 1, NULL), PD_OK);
        for (int s = 0; s < 4; s++) assert_int_equal(pd_model_step(alone, &f->io[p], NULL), PD_OK);
        pd_model_free(alone);
    }
    assert_memory_equal(together, f->weights, sizeof together);
}

TEST(root_tasks_run_inside_the_call, fixture *f)
{
    float first[ELEMENTS], plain[ELEMENTS];

    memcpy(first, f->weights[1], sizeof first);
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    memcpy(plain, f->weights[1], sizeof plain);
    fill(f);
    pd_model_free(f->model); /* Repeats the step with a root delay of one step. The roots are then used one step
                              * later, so the weights differ. */
    f->params[1].hypers.value[COUPLED_ROOT_DELAY] = 1;
    assert_int_equal(pd_model_new(&f->model, f->params, PARAMS, 2, NULL), PD_OK);
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    assert_memory_not_equal(first, plain, sizeof first);
    assert_memory_not_equal(f->weights[1], plain, sizeof plain);
}

TEST(a_parameter_without_a_gradient_stays, fixture *f)
{
    float kept[ELEMENTS];

    memcpy(kept, f->weights[1], sizeof kept);
    f->io[1].gradient = NULL;
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    assert_memory_equal(f->weights[1], kept, sizeof kept);
}

TEST(a_step_with_no_gradient_at_all_does_nothing, fixture *f)
{
    float kept[PARAMS][ELEMENTS];

    memcpy(kept, f->weights, sizeof kept);
    for (int p = 0; p < PARAMS; p++) f->io[p].gradient = NULL;
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK);
    assert_memory_equal(f->weights, kept, sizeof kept);
}

TEST(a_model_may_be_empty)
{
    pd_model *empty;
    assert_int_equal(pd_model_new(&empty, NULL, 0, 1, NULL), PD_OK);
    assert_int_equal(pd_model_step(empty, NULL, NULL), PD_OK);
    assert_int_equal(pd_model_state_bytes(empty), 0);
    pd_model_free(empty);
}

TEST(steps_parameters_without_elements)
{
    pd_declaration params[2] = { { .name = "a", .shape = { 2, { 0, 5 } } }, { .name = "b", .shape = { 1, { 0 } } } };
    float none[1] = { 7 };
    pd_step_io io[2] = { { none, none, none, NULL, 0, NULL, NULL }, { none, none, none, NULL, 0, NULL, NULL } };
    pd_model *model;

    pd_hypers_init(&params[0].hypers, &coupled_row);
    pd_hypers_init(&params[1].hypers, pd_optim_find("sgd"));
    assert_int_equal(pd_model_new(&model, params, 2, 2, NULL), PD_OK);
    for (int s = 0; s < 3; s++) assert_int_equal(pd_model_step(model, io, NULL), PD_OK);
    assert_true(none[0] == 7);
    pd_model_free(model);
}

TEST(names_the_parameter_that_a_row_refuses, fixture *f)
{
    pd_model *model = NULL;
    pd_error err;

    f->params[3].name = "layers.3.weight";
    f->params[3].shape.dim[0] = -7;
    assert_int_equal(pd_model_new(&model, f->params, PARAMS, 1, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "layers.3.weight"));
    assert_null(model);
}

TEST(a_step_of_a_model_without_temporaries_allocates_nothing, fixture *f)
{
    pd_model *model;
    int64_t before;

    assert_int_equal(pd_model_new(&model, f->params, 1, 2, NULL), PD_OK);
    before = oom_allocations();
    for (int s = 0; s < 3; s++) assert_int_equal(pd_model_step(model, f->io, NULL), PD_OK);
    assert_int_equal(oom_allocations(), before);
    pd_model_free(model);
}

TEST(a_step_without_memory_changes_nothing, fixture *f)
{
    float kept[PARAMS][ELEMENTS], expected[PARAMS][ELEMENTS];
    pd_model *twin;

    assert_int_equal(pd_model_new(&twin, f->params, PARAMS, 1, NULL), PD_OK);
    assert_int_equal(pd_model_step(twin, f->io, NULL), PD_OK);
    memcpy(expected, f->weights, sizeof expected);
    fill(f);
    memcpy(kept, f->weights, sizeof kept);
    for (int64_t n = 0; n < 2; n++) { /* memory runs out at the temporary slots of parameter 1, then at those of
                                       * parameter 3 */
        int rc;
        oom_arm(n);
        rc = pd_model_step(f->model, f->io, NULL);
        assert_true(oom_disarm());
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_memory_equal(f->weights, kept, sizeof kept);
    }
    assert_int_equal(pd_model_step(f->model, f->io, NULL), PD_OK); /* the failed steps left no trace: this is step 1 */
    assert_memory_equal(f->weights, expected, sizeof expected);
    pd_model_free(twin);
}

TEST(no_memory_gives_no_model, fixture *f)
{
    pd_model *model = NULL;
    int64_t n;

    for (n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = pd_model_new(&model, f->params, PARAMS, 2, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(model);
    }
    assert_true(n > 10);
    pd_model_free(model);
}
