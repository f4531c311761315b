/* Tests how one optimizer is created, used and freed. A row is an optimizer's entry in the table of optimizers: its
 * phases, slots and functions. test_row_contract.c tests its steps. */
#include "test.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include "batch.h"
#include "coupled_row.h"
#include "optimizer.h"

static const double no_stats[PD_MAX_MODEL_STATS];

/* An optimizer row with one phase, and a matrix that starts as twice the identity. */
static void nothing(const pd_unit *unit)
{
    unit->after[0] = unit->before[0];
}

static int identity_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    return pd_plan_slot(
               plan,
               &(pd_slot_spec){ .name = "Q", .number = -1, .shape = { 2, { 3, 3 } }, .fill = 2, .identity = true }) < 0
               ? PD_NO_MEMORY
               : PD_OK;
}

static const pd_hyper none[] = { { .name = NULL } };
static const pd_optimizer_ops identity = { .name = "identity",
                                           .hypers = none,
                                           .plan = identity_plan,
                                           .phases = { { "nothing", PD_WHOLE, nothing, { 0 }, NULL } } };

/* An optimizer row for tests of totals. Each unit (part of a phase that one thread computes) reports two values. The
 * first is summed over all units, and of the second the maximum is taken. The last phase writes both totals to the
 * weights. */
static int pairs_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    plan->range_elements = 1;
    return PD_OK;
}

static void leave(const pd_unit *unit)
{
    unit->partial[0] = unit->partial[1] = (double)unit->gradient[unit->first];
}

static void write_totals(const pd_unit *unit)
{
    unit->after[0] = (float)unit->total[0][0];
    unit->after[1] = (float)unit->total[0][1];
}

static const pd_optimizer_ops totals = {
    .name = "totals",
    .hypers = none,
    .plan = pairs_plan,
    .phases = { { "leave", PD_RANGES, leave, { PD_FOLD_SUM, PD_FOLD_MAX }, NULL },
                { "write", PD_WHOLE, write_totals, { 0 }, NULL } },
};

/* An optimizer row for tests of non-finite statistics. The statistics are the gradient. The root is always finite. */
static int blind_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)err;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "statistics", .number = -1 }) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = -1 }) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &(pd_task_spec){ .n_inputs = 1, .n_outputs = 1, .input = { 0 }, .output = { 1 } }) < 0
               ? PD_NO_MEMORY
               : PD_OK;
}

static void keep_gradient(const pd_unit *unit)
{
    unit->slot[0][0] = unit->gradient[0];
}
static void show_root(const pd_unit *unit)
{
    unit->after[0] = unit->slot[1][0];
}
static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    return plan != NULL && hyper != NULL && count > 0 && slot != NULL;
}

static int one(pd_task_view *task)
{
    task->output[0][0] = 1;
    return PD_OK;
}

static const pd_optimizer_ops blind = {
    .name = "blind",
    .hypers = none,
    .plan = blind_plan,
    .due = always,
    .task = one,
    .capture_phase = 1,
    .adopt_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep_gradient, { 0 }, NULL }, { "show", PD_WHOLE, show_root, { 0 }, NULL } },
};

/* Returns the number of threads that BLAS would use here. The row `census` writes it to the weights: weight 0 from
 * the last phase, weight 1 from the preconditioner task. */
static float blas_threads(void)
{
#ifdef _OPENMP
    return omp_in_parallel() ? 1 : (float)omp_get_max_threads();
#else
    return 1;
#endif
}

static void show_threads(const pd_unit *unit)
{
    unit->after[0] = blas_threads();
    unit->after[1] = unit->slot[1][0];
}

static int count_threads(pd_task_view *task)
{
    task->output[0][0] = blas_threads();
    return PD_OK;
}

static const pd_optimizer_ops census = {
    .name = "census",
    .hypers = none,
    .plan = blind_plan,
    .due = always,
    .task = count_threads,
    .capture_phase = 1,
    .adopt_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep_gradient, { 0 }, NULL }, { "show", PD_WHOLE, show_threads, { 0 }, NULL } },
};

static pd_optim *new_optim(const pd_optimizer_ops *row, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, row);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    return optim;
}

TEST(slots_begin_as_they_are_planned)
{
    pd_optim *coupled = new_optim(&coupled_row, (pd_shape){ 2, { 7, 5 } }),
             *matrix = new_optim(&identity, (pd_shape){ 1, { 1 } });
    const float twice_identity[9] = { 2, 0, 0, 0, 2, 0, 0, 0, 2 };

    for (size_t i = 2; i < pd_optim_plan(coupled)->n_slots; i++) {
        pd_tensor slot = pd_optim_slot(coupled, i);
        float fill = strcmp(pd_optim_plan(coupled)->slots[i].name, "root") == 0 ? 1 : 0;
        for (int64_t k = 0; k < slot.shape.dim[0] * slot.shape.dim[1]; k++) assert_true(slot.at[k] == fill);
    }
    assert_memory_equal(pd_optim_slot(matrix, 0).at, twice_identity, sizeof twice_identity);
    pd_optim_free(coupled);
    pd_optim_free(matrix);
}

TEST(slots_are_aligned_for_vectors)
{
    pd_optim *optim = new_optim(&coupled_row, (pd_shape){ 2, { 7, 5 } });

    for (size_t i = 1; i < pd_optim_plan(optim)->n_slots; i++)
        assert_int_equal((uintptr_t)pd_optim_slot(optim, i).at % 64, 0);
    pd_optim_free(optim);
}

TEST(a_temporary_slot_has_memory_only_during_a_step)
{
    pd_optim *optim = new_optim(&coupled_row, (pd_shape){ 1, { 5 } });
    float w[5] = { 0 };
    pd_task *task;

    assert_null(pd_optim_slot(optim, 0).at);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ w, w, w, NULL, 0, NULL, NULL }), PD_OK);
    assert_non_null(pd_optim_slot(optim, 0).at);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    while ((task = pd_optim_capture(optim)) != NULL) pd_optim_deliver(optim, task);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_true(pd_optim_done(optim));
    assert_null(pd_optim_slot(optim, 0).at);
    pd_optim_free(optim);
}

TEST(a_larger_parameter_costs_more)
{
    pd_optim *small = new_optim(pd_optim_find("sgd"), (pd_shape){ 1, { 1000 } }),
             *large = new_optim(pd_optim_find("sgd"), (pd_shape){ 1, { 1000000 } });

    assert_true(pd_optim_cost_ns(small) > 0);
    assert_true(pd_optim_cost_ns(large) > 100 * pd_optim_cost_ns(small));
    pd_optim_free(small);
    pd_optim_free(large);
}

TEST(counts_steps_begun)
{
    pd_optim *optim = new_optim(pd_optim_find("sgd"), (pd_shape){ 1, { 3 } });
    float w[3] = { 0 };

    assert_int_equal(pd_optim_count(optim), 0);
    for (int s = 1; s <= 3; s++) {
        assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ w, w, w, NULL, 0, NULL, NULL }), PD_OK);
        assert_false(pd_optim_done(optim));
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        assert_true(pd_optim_done(optim));
        assert_int_equal(pd_optim_count(optim), s);
    }
    pd_optim_free(optim);
}

TEST(tells_what_it_was_declared_with)
{
    pd_optim *optim = new_optim(pd_optim_find("sgd"), (pd_shape){ 2, { 3, 4 } });

    assert_int_equal(pd_optim_elements(optim), 12);
    assert_ptr_equal(pd_optim_hypers(optim)->row, pd_optim_find("sgd"));
    assert_int_equal(pd_optim_state_bytes(optim), 0);
    pd_optim_free(optim);
    pd_optim_free(NULL);
}

/* Writes the sum and the maximum of three numbers, one per unit, to `out`. */
static void fold(float a, float b, float c, float *out)
{
    pd_optim *optim = new_optim(&totals, (pd_shape){ 1, { 3 } });
    float g[3] = { a, b, c };

    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ g, g, out, NULL, 0, NULL, NULL }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
    pd_optim_free(optim);
}

TEST(folds_begin_with_the_first_value)
{
    float out[2];
    fold(-3, -1, -2, out);
    assert_true(out[0] == -6 && out[1] == -1);
}

TEST(a_nan_stays_in_a_fold)
{
    const float nan = NAN;
    float out[2];
    for (int place = 0; place < 3; place++) {
        fold(place == 0 ? nan : 1, place == 1 ? nan : 2, place == 2 ? nan : 3, out);
        assert_true(isnan(out[0]) && isnan(out[1]));
    }
}

TEST(a_root_never_sees_what_is_not_finite)
{
    const float gradient[3] = { NAN, INFINITY, 5 }, expected[3] = { 0, 0, 1 };
    pd_optim *optim = new_optim(&blind, (pd_shape){ 1, { 1 } });

    for (int s = 0; s < 3; s++) {
        float after;
        pd_task *task;
        assert_int_equal(
            pd_optim_begin(optim, &(pd_step_io){ &gradient[s], &gradient[s], &after, NULL, 0, NULL, NULL }), PD_OK);
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        assert_non_null(task = pd_optim_capture(optim));
        pd_task_run(task);
        pd_optim_deliver(optim, task);
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        assert_true(after == expected[s]);
    }
    assert_int_equal(pd_optim_root_stats(optim).failed, 2);
    pd_optim_free(optim);
}

TEST(a_finished_step_in_the_list_is_passed_over)
{
    pd_optim *both[2] = { new_optim(pd_optim_find("sgd"), (pd_shape){ 1, { 3 } }),
                          new_optim(pd_optim_find("sgd"), (pd_shape){ 1, { 3 } }) };
    float w[2][3] = { { 0 }, { 1, 2, 3 } }, g[3] = { 1, 1, 1 };

    assert_int_equal(pd_optim_begin(both[0], &(pd_step_io){ g, w[0], w[0], NULL, 0, NULL, NULL }), PD_OK);
    assert_int_equal(pd_batch_run(both, 2, 2), PD_OK);
    assert_true(w[0][0] < 0 && w[1][0] == 1);
    assert_int_equal(pd_batch_run(both, 0, 2), PD_OK);
    pd_optim_free(both[0]);
    pd_optim_free(both[1]);
}

/* OpenBLAS takes its number of threads from OpenMP. It does not regard an OpenMP team of one thread as parallel.
 * Without a precaution, BLAS would then use more threads on larger machines, and results would depend on the
 * machine. */
TEST(blas_has_one_thread_whatever_the_team)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { 2 } } };
    float w[2] = { 0 }, g[2] = { 1, 1 };
    pd_model *model;

#ifdef _OPENMP
    omp_set_num_threads(4);
#endif
    pd_hypers_init(&declaration.hypers, &census);
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(pd_model_new(&model, &declaration, 1, threads, NULL), PD_OK);
        assert_int_equal(pd_model_step(model, &(pd_step_io){ .gradient = g, .before = w, .after = w }, NULL), PD_OK);
        assert_true(w[0] == 1);
        assert_true(w[1] == 1);
        pd_model_free(model);
    }
}
