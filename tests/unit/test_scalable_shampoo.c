/* Tests properties of the optimizer scalable_shampoo: equal bits with any number of threads, independent blocks,
 * delays, memory, and unusual shapes and gradients. Tests of its formulas: test_scalable_shampoo_twin.c; recorded
 * runs of upstream: tests/golden/test_google_shampoo.c. */
#include "test.h"
#include "block_products.h"
#include "optimizer.h"
#include "partition.h"
#include "shampoos.h"

typedef shampoo_run run;

static run run_of(const pd_shape *shape, const char *hypers, int steps)
{
    return shampoo_run_of("scalable_shampoo", shape, hypers, steps);
}

static bool runs_agree(const pd_shape *shape, const char *one, const char *other, int steps)
{
    return shampoo_runs_agree("scalable_shampoo", shape, one, other, steps);
}

static float *slot_of_run(const run *r, const char *slot, int number, int64_t n)
{
    return shampoo_slot(r, slot, number, -1, n);
}

TEST(the_number_of_threads_does_not_change_a_bit)
{
    static const char *const kinds[] = {
        "block_size=32 graft_type=SGD start_preconditioning_step=1",
        "block_size=32 graft_type=RMSPROP_NORMALIZED clip_by_scaled_gradient_norm=0.5",
        "block_size=20 graft_type=ADAGRAD preconditioning_compute_steps=3 root_delay=2",
        "block_size=32 graft_type=SQRT_N best_effort_memory_usage_reduction=yes",
    };
    static const pd_shape shapes[] = { { 2, { 200, 150 } }, { 3, { 40, 37, 21 } } };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < 2; s++) shampoo_assert_threads_agree("scalable_shampoo", &shapes[s], kinds[k], 4);
}

TEST(a_block_knows_nothing_of_the_others)
{
    static const pd_shape shape = { 2, { 8, 16 } };
    static const char hypers[] = "block_size=8 best_effort_shape_interpretation=no";
    run a = run_of(&shape, hypers, 1), b = run_of(&shape, hypers, 1);

    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    shampoo_run_draw(&a);
    memcpy(b.gradient[0], a.gradient[0], 8 * 16 * sizeof(float));
    for (int row = 0; row < 8; row++) b.gradient[0][row * 16 + 12] += 1; /* changes an element in the second block */
    shampoo_run_step(&a);
    shampoo_run_step(&b);
    for (int k = 0; k < 4; k++) {
        float *x = slot_of_run(&a, "preconditioners", k, 64), *y = slot_of_run(&b, "preconditioners", k, 64);
        assert_int_equal(memcmp(x, y, 64 * sizeof *x) == 0, k < 2);
        free(x);
        free(y);
    }
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

TEST(statistics_are_read_back_symmetric)
{
    run r = run_of(&(pd_shape){ 2, { 9, 7 } }, "block_size=16 best_effort_shape_interpretation=no", 3);
    float *S;

    shampoo_run_all(&r);
    S = slot_of_run(&r, "statistics", 0, 81);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++) assert_true(S[i * 9 + j] == S[j * 9 + i] && S[i * 9 + j] != 0);
    free(S);
    shampoo_run_end(&r);
}

TEST(sharded_state_is_a_root_delay_of_1)
{
    static const pd_shape shape = { 2, { 20, 9 } };

    assert_true(runs_agree(&shape, "block_size=8 start_preconditioning_step=1 root_delay=1",
                           "block_size=8 start_preconditioning_step=1 shard_optimizer_states=yes", 6));
    assert_false(runs_agree(&shape, "block_size=8 start_preconditioning_step=1",
                            "block_size=8 start_preconditioning_step=1 root_delay=1", 6));
}

/* With root_delay=ready, tasks that are run at the end of a step have their roots ready in the next step, as with
 * root_delay=1. */
TEST(ready_roots_are_used_once_they_are_there)
{
    static const pd_shape shape = { 2, { 20, 9 } };

    assert_true(
        runs_agree(&shape, "block_size=8 start_preconditioning_step=1 preconditioning_compute_steps=2 root_delay=1",
                   "block_size=8 start_preconditioning_step=1 preconditioning_compute_steps=2 root_delay=ready", 7));
}

HOLDS(precision_changes_nothing,
      assert_true(runs_agree(&(pd_shape){ 2, { 20, 9 } }, "block_size=8 start_preconditioning_step=1",
                             "block_size=8 start_preconditioning_step=1 precision=default", 5)));

/* A second parameter with a larger block changes the ridge of a smaller block. padding_coupling=no switches that
 * off. */
TEST(padding_couples_the_parameters_of_a_model_if_wanted)
{
    for (int coupled = 0; coupled < 2; coupled++) {
        static const char common[] =
            "start_preconditioning_step=0 matrix_epsilon=0.01 best_effort_shape_interpretation=no";
        char hypers[160];
        run alone, beside;
        snprintf(hypers, sizeof hypers, "%s padding_coupling=%s", common, coupled ? "yes" : "no");
        alone = beside = run_of(&(pd_shape){ 2, { 4, 3 } }, hypers, 1);
        beside.n = 2;
        beside.param[1] = (pd_declaration){ .name = "v", .shape = { 1, { 9 } }, .hypers = beside.param[0].hypers };
        shampoo_run_begin(&alone);
        shampoo_run_begin(&beside);
        shampoo_run_draw(&beside);
        for (int i = 0; i < 12; i++) beside.gradient[0][i] *= 0.01f;
        memcpy(alone.gradient[0], beside.gradient[0], 12 * sizeof(float));
        memcpy(alone.weights[0], beside.weights[0], 12 * sizeof(float));
        shampoo_run_step(&alone);
        shampoo_run_step(&beside);
        assert_int_equal(shampoo_same_bits(&alone, &beside), !coupled);
        shampoo_run_end(&alone);
        shampoo_run_end(&beside);
    }
}

TEST(every_root_method_comes_close_to_newton)
{
    static const char *const methods[] = { "eigh", "eigh64", "tracked" };
    static const pd_shape shape = { 2, { 30, 24 } };
    static const char common[] = "block_size=16 start_preconditioning_step=2 beta2=0.9 matrix_epsilon=1e-4 "
                                 "padding_coupling=no inverse_failure_threshold=1";

    for (size_t k = 0; k < sizeof methods / sizeof *methods; k++) {
        char hypers[256];
        double sum = 0, norm = 0;
        run newton = run_of(&shape, common, 8), other;
        snprintf(hypers, sizeof hypers, "%s root_method=%s", common, methods[k]);
        other = run_of(&shape, hypers, 8);
        shampoo_run_all(&newton);
        shampoo_run_all(&other);
        for (int i = 0; i < 30 * 24; i++) {
            sum += pow((double)other.weights[0][i] - (double)newton.weights[0][i], 2);
            norm += pow((double)newton.weights[0][i], 2);
        }
        if (!(sqrt(sum / norm) < 1e-2)) fail_msg("%s: off by %g", methods[k], sqrt(sum / norm));
        shampoo_run_end(&newton);
        shampoo_run_end(&other);
    }
}

/* Returns the bytes of the optimizer's state, by section 11 of the algorithm's specification. */
static double formula(const pd_shape *shape, int64_t block_size, bool reduced, bool diagonal)
{
    pd_shape merged = pd_shape_merged(shape, block_size);
    double bytes, elements;
    int64_t n = 0;

    assert_int_equal(pd_shape_elements(shape, &n), PD_OK);
    elements = (double)n;
    bytes = reduced ? 2 * elements + 2 * 4 * elements / (double)shape->dim[0] : 8 * elements;
    if (diagonal) bytes += 4 * elements;
    for (int64_t b = 0; b < pd_partition_count(&merged, block_size); b++) {
        pd_block block = pd_partition_block(&merged, block_size, b);
        for (int d = 0; d < merged.rank; d++) {
            double s = (double)block.size[d];
            bytes += 2 * (reduced ? 2 * s * s + 8 * s : 4 * s * s);
        }
    }
    return bytes;
}

TEST(state_takes_the_memory_that_the_formula_says)
{
    static const pd_shape shapes[] = {
        { 2, { 4096, 1024 } }, { 2, { 1000, 300 } }, { 4, { 3, 3, 64, 128 } }, { 1, { 4000 } }
    };
    pd_error err;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 4; kind++) {
            char hypers[128];
            pd_declaration param = { .name = "w", .shape = shapes[s] };
            pd_plan plan;
            double ratio;
            snprintf(hypers, sizeof hypers, "block_size=128 best_effort_memory_usage_reduction=%s graft_type=%s",
                     kind & 1 ? "yes" : "no", kind & 2 ? "RMSPROP" : "SGD");
            param.hypers = shampoo_hypers("scalable_shampoo", hypers);
            if (pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 128 }, &err) != PD_OK)
                fail_msg("%s", err.text);
            ratio = (double)pd_plan_state_bytes(&plan) / formula(&shapes[s], 128, kind & 1, kind & 2);
            assert_true(ratio > 0.98 && ratio <= 1.02);
            pd_plan_free(&plan);
        }
}

TEST(diagonal_statistics_may_take_half_the_memory)
{
    run full = run_of(&(pd_shape){ 1, { 5000 } }, "graft_type=RMSPROP", 1),
        half = run_of(&(pd_shape){ 1, { 5000 } }, "graft_type=RMSPROP diagonal_statistics_dtype=bfloat16", 1);

    shampoo_run_all(&full);
    shampoo_run_all(&half);
    assert_int_equal(pd_model_state_bytes(full.model) - pd_model_state_bytes(half.model), 2 * 5000);
    shampoo_run_end(&full);
    shampoo_run_end(&half);
}

TEST(what_upstream_refuses_is_an_ordinary_step)
{
    static const pd_shape shapes[] = { { 0, { 0 } },
                                       { 1, { 1 } },
                                       { 2, { 1, 1 } },
                                       { 3, { 1, 1, 1 } },
                                       { 1, { 5 } },
                                       { 2, { 5, 3 } },
                                       { 8, { 2, 1, 2, 1, 2, 1, 3, 2 } },
                                       { 2, { 300, 1 } },
                                       { 2, { 1, 300 } } };
    static const char *const kinds[] = {
        "block_size=2",
        "block_size=128",
        "block_size=0",
        "block_size=2 best_effort_shape_interpretation=no",
        "skip_preconditioning_dim_size_gt=2",
        "best_effort_memory_usage_reduction=yes block_size=4",
        "shard_optimizer_states=yes best_effort_memory_usage_reduction=yes",
        "graft_type=SQRT_N best_effort_memory_usage_reduction=yes",
        "graft_type=ADAGRAD_NORMALIZED",
        "exponent_override=1 block_size=1",
    };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            run r = run_of(&shapes[s], kinds[k], 3);
            shampoo_run_moves(&r, 7);
        }
}

TEST(a_dimension_of_0_has_no_state_and_takes_steps)
{
    static const pd_shape shapes[] = { { 1, { 0 } }, { 2, { 0, 4 } }, { 3, { 3, 0, 0 } } };

    for (int s = 0; s < 3; s++) {
        run r = run_of(&shapes[s], "block_size=4", 3);
        shampoo_run_all(&r);
        assert_int_equal(pd_model_state_bytes(r.model), 0);
        shampoo_run_end(&r);
    }
}

TEST(a_gradient_of_zeros_moves_nothing)
{
    static const char *const grafts[] = { "SGD",    "ADAGRAD",           "RMSPROP", "RMSPROP_NORMALIZED",
                                          "SQRT_N", "ADAGRAD_NORMALIZED" };

    for (int g = 0; g < 6; g++) {
        char hypers[64];
        run r;
        float first;
        snprintf(hypers, sizeof hypers, "graft_type=%s start_preconditioning_step=1", grafts[g]);
        r = run_of(&(pd_shape){ 2, { 6, 5 } }, hypers, 0);
        shampoo_run_begin(&r);
        first = r.weights[0][7];
        for (int step = 0; step < 3; step++) shampoo_run_step(&r);
        assert_true(r.weights[0][7] == first && shampoo_all_finite(r.weights[0], 30));
        shampoo_run_end(&r);
    }
}

/* A NaN spoils its parameter even before preconditioning starts. The reason is that the two momenta are chosen by
 * arithmetic, not by a branch. */
TEST(a_nan_spoils_its_parameter_for_ever_and_no_other)
{
    run r = run_of(&(pd_shape){ 2, { 6, 5 } }, "block_size=4 start_preconditioning_step=5", 0);
    float *before, *after;

    r.n = 2;
    r.param[1] = (pd_declaration){ .name = "v", .shape = { 1, { 7 } }, .hypers = r.param[0].hypers };
    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    shampoo_run_step(&r);
    before = slot_of_run(&r, "preconditioners", 0, 16);
    shampoo_run_draw(&r);
    r.gradient[0][0] = NAN;
    shampoo_run_step(&r);
    shampoo_run_draw(&r);
    shampoo_run_step(&r);
    after = slot_of_run(&r, "preconditioners", 0, 16);
    for (int i = 0; i < 30; i++) assert_true(isnan(r.weights[0][i]));
    assert_true(shampoo_all_finite(r.weights[1], 7));
    assert_memory_equal(before, after, 16 * sizeof *before);
    free(before);
    free(after);
    shampoo_run_end(&r);
}

/* Where NaN roots leak, the weights become NaN even before step 5, while only the graft's momentum moves them. */
TEST(a_nan_root_destroys_the_last_one_where_that_defect_is_wanted)
{
    for (int leaks = 0; leaks < 2; leaks++) {
        run r = run_of(&(pd_shape){ 2, { 6, 5 } },
                       leaks ? "nesterov=no graft_type=RMSPROP_NORMALIZED shard_optimizer_states=yes nan_roots_leak=yes"
                             : "nesterov=no graft_type=RMSPROP_NORMALIZED shard_optimizer_states=yes",
                       0);
        float *X;
        shampoo_run_begin(&r);
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        shampoo_run_draw(&r);
        for (int i = 0; i < 30; i++) r.gradient[0][i] *= 1e21f; /* statistics overflow */
        shampoo_run_step(&r);
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        X = slot_of_run(&r, "preconditioners", 0, 30 * 30);
        assert_int_equal(isnan(X[0]), leaks);
        assert_int_equal(isnan(r.weights[0][0]), leaks);
        free(X);
        shampoo_run_end(&r);
    }
}

/* Norms are computed in float32. They overflow above 1.8e19, and for the smallest gradients they are 0. */
TEST(norms_are_those_of_float32)
{
    static const float sizes[] = { 1e30f, 1e-30f };

    for (int k = 0; k < 2; k++) {
        run r = run_of(&(pd_shape){ 2, { 6, 5 } }, "learning_rate=1e-30 start_preconditioning_step=0", 0);
        float first;
        shampoo_run_begin(&r);
        first = r.weights[0][3];
        shampoo_run_draw(&r);
        for (int i = 0; i < 30; i++) r.gradient[0][i] *= sizes[k];
        shampoo_run_step(&r);
        if (k == 0)
            assert_true(isnan(r.weights[0][3])); /* infinity over infinity */
        else
            assert_true(r.weights[0][3] == first);
        shampoo_run_end(&r);
    }
}

/* The slot of root errors keeps the last error when a new root has none. */
TEST(errors_of_roots_stay_where_the_new_one_is_none)
{
    run r = run_of(&(pd_shape){ 2, { 4, 3 } }, "block_size=4", 0);
    float *first, *later;

    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    shampoo_run_step(&r);
    first = slot_of_run(&r, "inverse_pth_root_errors", -1, 2);
    assert_true(first[0] > 0 && first[1] > 0);
    r.gradient[0][0] = NAN;
    shampoo_run_step(&r);
    later = slot_of_run(&r, "inverse_pth_root_errors", -1, 2);
    assert_memory_equal(first, later, 2 * sizeof *first);
    free(first);
    free(later);
    shampoo_run_end(&r);
}

/* Large blocks are used in place. Blocks at the edge of the tensor are copied to scratch memory. */
TEST(every_block_has_the_scratch_memory_that_it_takes)
{
    static const pd_shape shapes[] = {
        { 2, { 360, 301 } }, { 2, { 190, 400 } }, { 3, { 30, 50, 40 } }, { 3, { 64, 64, 9 } }
    };
    static const char *const kinds[] = { "block_size=200", "block_size=185", "block_size=40",
                                         "block_size=200 best_effort_memory_usage_reduction=yes" };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            pd_declaration param = { .name = "w",
                                     .shape = shapes[s],
                                     .hypers = shampoo_hypers("scalable_shampoo", kinds[k]) };
            pd_plan plan;
            assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 200 }, NULL), PD_OK);
            assert_true(plan.n_blocks > 0);
            for (size_t b = 0; b < plan.n_blocks; b++)
                assert_true(pd_block_view_scratch(&plan.shape, &plan.blocks[b]) +
                                pd_block_contract_scratch(&plan.shape, &plan.blocks[b]) <=
                            (int64_t)plan.scratch_floats);
            pd_plan_free(&plan);
        }
}

TEST(out_of_memory_is_told_and_leaves_nothing)
{
    pd_declaration param = { .name = "w",
                             .shape = { 2, { 9, 6 } },
                             .hypers = shampoo_hypers(
                                 "scalable_shampoo",
                                 "block_size=4 graft_type=RMSPROP best_effort_memory_usage_reduction=yes") };

    assert_true(oom_each(shampoo_try_model, &param) > 10);
}

/* A root without memory counts as failed. The last root stays in use, and the step is taken. */
HOLDS(a_root_without_memory_is_a_root_that_failed,
      shampoo_assert_steps_without_memory("scalable_shampoo", &(pd_shape){ 2, { 6, 5 } }, "block_size=8", 1));

TEST(values_out_of_range_are_refused_by_name)
{
    shampoo_assert_refused("scalable_shampoo", "beta1", "1", "below 1");
    shampoo_assert_refused("scalable_shampoo", "beta1", "-0.1", "0 to 1");
    shampoo_assert_refused("scalable_shampoo", "beta2", "0", "above 0");
    shampoo_assert_refused("scalable_shampoo", "matrix_epsilon", "-1", "-1");
    shampoo_assert_refused("scalable_shampoo", "root_retries", "7", "6");
    shampoo_assert_refused("scalable_shampoo", "root_delay", "2", "preconditioning_compute_steps");
    shampoo_assert_refused("scalable_shampoo", "graft_type", "ADAM", "RMSPROP_NORMALIZED");
    shampoo_assert_refused("scalable_shampoo", "preconditioning_compute_steps", "0", "1");
}

TEST(a_matrix_too_large_to_address_is_refused_at_declaration)
{
    pd_declaration param = { .name = "emb",
                             .shape = { 2, { (int64_t)1 << 30, 2 } },
                             .hypers = shampoo_hypers("scalable_shampoo",
                                                      "block_size=0 skip_preconditioning_dim_size_gt=2147483647") };
    pd_plan plan;
    pd_error err;

    assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "emb"));
}
