/* Tests properties of the optimizer shampoo: equal bits with any number of threads, independent blocks, lengths of
 * steps, storage, communication, delays and unusual shapes. Tests of failures: test_shampoo_failures.c; of formulas:
 * test_shampoo_twin.c; recorded runs and tables of upstream: tests/golden/test_meta_*.c. */
#include "test.h"
#include "convert.h"
#include "partition.h"
#include "plan_bytes.h"
#include "plan_make.h"
#include "shampoo_step.h"
#include "shampoos.h"

typedef shampoo_run run;

static run run_of(const pd_shape *shape, const char *hypers, int steps)
{
    return shampoo_run_of("shampoo", shape, hypers, steps);
}

static bool runs_agree(const pd_shape *shape, const char *one, const char *other, int steps)
{
    return shampoo_runs_agree("shampoo", shape, one, other, steps);
}

static const pd_shape matrix = { 2, { 20, 9 } };
#define BLOCKS "max_preconditioner_dim=8 epsilon=1e-4 betas=0.9,0.99 "

TEST(the_number_of_threads_does_not_change_a_bit)
{
    static const char *const kinds[] = {
        "max_preconditioner_dim=32 grafting_config=SGD",
        "max_preconditioner_dim=32 grafting_config=Adam betas=0.9,0.99 momentum=0.9 use_nesterov=yes weight_decay=0.1",
        "max_preconditioner_dim=20 grafting_config=Adagrad precondition_frequency=3 root_delay=2 "
        "preconditioner_dtype=float64",
        "max_preconditioner_dim=32 betas=0,0.9 use_decoupled_weight_decay=no weight_decay=0.1 "
        "precision_config=PrecisionConfig(factor_matrix_dtype=bfloat16)",
    };
    static const pd_shape shapes[] = { { 2, { 70, 50 } }, { 3, { 11, 13, 21 } }, { 1, { 100 } } };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < 3; s++) shampoo_assert_threads_agree("shampoo", &shapes[s], kinds[k], 4);
}

/* Neither the factors of a block nor its step depend on other blocks. */
TEST(a_block_knows_nothing_of_the_others)
{
    run a = run_of(&(pd_shape){ 2, { 8, 16 } }, BLOCKS "grafting_config=Adam use_merge_dims=no", 1), b = a;

    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    for (int step = 0; step < 3; step++) {
        shampoo_run_draw(&a);
        memcpy(b.gradient[0], a.gradient[0], 8 * 16 * sizeof(float));
        for (int row = 0; row < 8; row++) b.gradient[0][row * 16 + 12] += 1; /* changes the second block */
        shampoo_run_step(&a);
        shampoo_run_step(&b);
    }
    for (int block = 0; block < 2; block++)
        for (int k = 0; k < 2; k++) {
            float *x = shampoo_slot(&a, "inv_factor_matrices", k, block, 64),
                  *y = shampoo_slot(&b, "inv_factor_matrices", k, block, 64);
            assert_int_equal(memcmp(x, y, 64 * sizeof *x) == 0, block == 0);
            free(x);
            free(y);
        }
    for (int row = 0; row < 8; row++) {
        assert_memory_equal(a.weights[0] + row * 16, b.weights[0] + row * 16, 8 * sizeof(float));
        assert_true(a.weights[0][row * 16 + 8] != b.weights[0][row * 16 + 8]);
    }
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

TEST(factors_are_read_back_symmetric)
{
    static const char *const kinds[] = { "none", "float64" };

    for (int kind = 0; kind < 2; kind++) {
        char hypers[96];
        run r;
        float *L;
        snprintf(hypers, sizeof hypers, "use_merge_dims=no preconditioner_dtype=%s", kinds[kind]);
        r = run_of(&(pd_shape){ 2, { 9, 7 } }, hypers, 3);
        shampoo_run_all(&r);
        L = shampoo_slot(&r, "factor_matrices", 0, 0, 81);
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 9; j++) assert_true(L[i * 9 + j] == L[j * 9 + i] && L[i * 9 + j] != 0);
        free(L);
        shampoo_run_end(&r);
    }
}

TEST(factors_and_roots_begin_at_zero)
{
    run r = run_of(&(pd_shape){ 2, { 9, 7 } }, "use_merge_dims=no", 0);

    shampoo_run_begin(&r);
    for (int k = 0; k < 2; k++) {
        int64_t n = k == 0 ? 81 : 49;
        float *L = shampoo_slot(&r, "factor_matrices", k, 0, n), *R = shampoo_slot(&r, "inv_factor_matrices", k, 0, n);
        for (int64_t i = 0; i < n; i++) assert_true(L[i] == 0 && R[i] == 0);
        free(L);
        free(R);
    }
    shampoo_run_end(&r);
}

TEST(nesterov_without_momentum_changes_nothing)
{
    assert_true(runs_agree(&matrix, BLOCKS "grafting_config=SGD", BLOCKS "grafting_config=SGD use_nesterov=yes", 5));
    assert_false(runs_agree(&matrix, BLOCKS "grafting_config=SGD momentum=0.5",
                            BLOCKS "grafting_config=SGD momentum=0.5 use_nesterov=yes", 5));
}

TEST(a_list_of_overrides_counts_from_order_0_and_a_0_in_it_is_the_default)
{
    assert_true(runs_agree(&matrix, BLOCKS "inv_root_override=[7,9,3]", BLOCKS "inv_root_override=3", 4));
    assert_true(runs_agree(&matrix, BLOCKS "inv_root_override=[7,9,0]", BLOCKS "inv_root_override=4", 4));
    assert_true(runs_agree(&matrix, BLOCKS "inv_root_override=[7,9]", BLOCKS, 4));
    assert_false(runs_agree(&matrix, BLOCKS "inv_root_override=3", BLOCKS, 4));
}

TEST(a_start_of_minus_1_is_the_frequency)
{
    assert_true(runs_agree(&matrix, BLOCKS "precondition_frequency=3",
                           BLOCKS "precondition_frequency=3 start_preconditioning_step=3", 7));
    assert_false(runs_agree(&matrix, BLOCKS "precondition_frequency=3",
                            BLOCKS "precondition_frequency=3 start_preconditioning_step=4", 7));
}

HOLDS(what_concerns_execution_alone_changes_nothing,
      assert_true(runs_agree(&matrix, BLOCKS,
                             BLOCKS "num_trainers_per_group=4 track_root_inv_residuals=yes communication_dtype=DEFAULT "
                                    "precision_config=PrecisionConfig()",
                             4)));

/* Coupled weight decay acts like a term added to the gradient, also in everything that is computed from the
 * gradient. */
TEST(coupled_decay_is_a_part_of_the_gradient)
{
    static const char common[] = BLOCKS "grafting_config=RMSprop use_decoupled_weight_decay=no momentum=0.5";
    char hypers[256];
    run penalized, plain = run_of(&matrix, common, 1);

    snprintf(hypers, sizeof hypers, "%s weight_decay=0.25", common);
    penalized = run_of(&matrix, hypers, 1);
    shampoo_run_begin(&penalized);
    shampoo_run_begin(&plain);
    for (int step = 0; step < 5; step++) {
        shampoo_run_draw(&penalized);
        for (int i = 0; i < 180; i++) plain.gradient[0][i] = penalized.gradient[0][i] + 0.25f * plain.weights[0][i];
        shampoo_run_step(&penalized);
        shampoo_run_step(&plain);
    }
    assert_true(shampoo_same_bits(&penalized, &plain));
    shampoo_run_end(&penalized);
    shampoo_run_end(&plain);
}

/* Returns the length of the step x - y, or of the gradient x if y is NULL, in columns [left, left + 8). */
static double length(const float *x, const float *y, int left)
{
    double sum = 0;

    for (int row = 0; row < 8; row++)
        for (int col = left; col < left + 8; col++)
            sum += pow((double)x[row * 16 + col] - (y == NULL ? 0 : (double)y[row * 16 + col]), 2);
    return sqrt(sum);
}

TEST(each_block_takes_a_step_as_long_as_its_graft)
{
    run r = run_of(&(pd_shape){ 2, { 8, 16 } }, "max_preconditioner_dim=8 lr=0.5 betas=0,1 grafting_config=SGD", 0);
    float before[8 * 16];

    shampoo_run_begin(&r);
    for (int step = 0; step < 3; step++) {
        shampoo_run_draw(&r);
        for (int i = 0; i < 8 * 16; i++) r.gradient[0][i] *= i % 16 < 8 ? 1 : 100;
        memcpy(before, r.weights[0], sizeof before);
        shampoo_run_step(&r);
        for (int left = 0; left < 16; left += 8) {
            double step_length = length(r.weights[0], before, left), graft = 0.5 * length(r.gradient[0], NULL, left);
            assert_true(fabs(step_length / graft - 1) < 1e-4);
        }
    }
    shampoo_run_end(&r);
}

TEST(without_a_graft_nothing_but_decay_moves_before_the_start)
{
    run r = run_of(&matrix, BLOCKS "start_preconditioning_step=3 weight_decay=0.5 lr=0.5", 0);

    shampoo_run_begin(&r);
    for (int step = 1; step <= 3; step++) {
        float before = r.weights[0][5];
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        assert_int_equal(r.weights[0][5] == before + -0.5f * (0.5f * before), step < 3);
    }
    shampoo_run_end(&r);
}

TEST(a_gradient_of_zeros_moves_nothing)
{
    static const char *const grafts[] = { "none", "SGD", "Adagrad", "RMSprop", "Adam" };

    for (int g = 0; g < 5; g++) {
        char hypers[64];
        run r;
        float first;
        snprintf(hypers, sizeof hypers, "grafting_config=%s betas=0.9,0.99", grafts[g]);
        r = run_of(&(pd_shape){ 2, { 6, 5 } }, hypers, 0);
        shampoo_run_begin(&r);
        first = r.weights[0][7];
        for (int step = 0; step < 3; step++) shampoo_run_step(&r);
        assert_true(r.weights[0][7] == first && shampoo_all_finite(r.weights[0], 30));
        shampoo_run_end(&r);
    }
}

static float rounded(float x, int dtype)
{
    return dtype == 0 ? pd_f32_from_bf16(pd_bf16_from_f32(x)) : pd_f32_from_f16(pd_f16_from_f32(x));
}

/* Within a step, new state is used before it is rounded. The next step reads the rounded state. */
TEST(state_is_used_before_it_is_rounded)
{
    static const char *const dtypes[] = { "bfloat16", "float16" };
    static const struct {
        const char *key, *slot;
        int number, block;
        int64_t n;
    } all[] = {
        { "factor_matrix_dtype", "factor_matrices", 0, 0, 64 },
        { "inv_factor_matrix_dtype", "inv_factor_matrices", 1, 1, 1 },
        { "filtered_grad_dtype", "filtered_grad", -1, -1, 180 },
        { "momentum_dtype", "momentum", -1, -1, 180 },
        { "grafting_state_dtype", "grafting_second_moment", -1, -1, 180 },
    };
    static const char common[] = BLOCKS "momentum=0.5 grafting_config=Adam use_merge_dims=no";

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int dtype = 0; dtype < 2; dtype++) {
            char hypers[256];
            run full = run_of(&matrix, common, 1), small;
            float *x, *y;
            snprintf(hypers, sizeof hypers, "%s precision_config=PrecisionConfig(%s=%s)", common, all[k].key,
                     dtypes[dtype]);
            small = run_of(&matrix, hypers, 1);
            shampoo_run_all(&full);
            shampoo_run_all(&small);
            assert_true(shampoo_same_bits(&full, &small));
            x = shampoo_slot(&full, all[k].slot, all[k].number, all[k].block, all[k].n);
            y = shampoo_slot(&small, all[k].slot, all[k].number, all[k].block, all[k].n);
            for (int64_t i = 0; i < all[k].n; i++) assert_true(y[i] == rounded(x[i], dtype));
            free(x);
            free(y);
            assert_true(pd_model_state_bytes(small.model) < pd_model_state_bytes(full.model));
            shampoo_run_end(&full);
            shampoo_run_end(&small);
            if (all[k].n > 1) assert_false(runs_agree(&matrix, common, hypers, 2));
        }
}

TEST(float64_factors_keep_what_float32_would_lose)
{
    static const char *const kinds[] = { "preconditioner_dtype=float32", "preconditioner_dtype=float64",
                                         "precision_config.factor_matrix_dtype=float64" };

    for (int kind = 0; kind < 3; kind++) {
        run r = run_of(&(pd_shape){ 1, { 2 } }, kinds[kind], 0);
        double L[4];
        shampoo_run_begin(&r);
        r.gradient[0][0] = 1e4f;
        r.gradient[0][1] = 1;
        shampoo_run_step(&r);
        r.gradient[0][0] = 0.5f;
        shampoo_run_step(&r);
        assert_int_equal(pd_model_read_part(r.model, 0, "factor_matrices", 0, 0, L, 4, NULL), PD_OK);
        assert_int_equal(L[0] == 1e8 + 0.25, kind > 0);
        assert_true(L[1] == L[2]);
        shampoo_run_end(&r);
    }
}

/* By section 12 of the algorithm's specification, the state has two square matrices for each dimension of a block,
 * and one number per element for each running average. */
TEST(state_takes_the_memory_that_the_page_says)
{
    static const pd_shape shapes[] = { { 2, { 300, 100 } }, { 4, { 3, 3, 64, 128 } }, { 1, { 4000 } } };

    for (size_t s = 0; s < 3; s++)
        for (int kind = 0; kind < 8; kind++) {
            char hypers[160];
            pd_declaration param = { .name = "w", .shape = shapes[s] };
            pd_shape merged = pd_shape_merged(&shapes[s], 128);
            int64_t n = shampoo_elements(&param), bytes = 4 * n * ((kind & 1) + (kind >> 1 & 1) + (kind >> 2 & 1));
            pd_plan plan;
            snprintf(hypers, sizeof hypers, "max_preconditioner_dim=128 betas=%s,0.9 momentum=%s grafting_config=%s",
                     kind & 1 ? "0.9" : "0", kind & 2 ? "0.9" : "0", kind & 4 ? "Adam" : "SGD");
            param.hypers = shampoo_hypers("shampoo", hypers);
            assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
            for (int64_t b = 0; b < pd_partition_count(&merged, 128); b++) {
                pd_block block = pd_partition_block(&merged, 128, b);
                for (int d = 0; d < merged.rank; d++) bytes += 2 * 4 * block.size[d] * block.size[d];
            }
            assert_int_equal(pd_plan_state_bytes(&plan), bytes);
            pd_plan_free(&plan);
        }
}

TEST(updates_are_what_was_added_to_the_weights)
{
    static const char *const kinds[] = { "communication_dtype=FP32", "communication_dtype=BF16",
                                         "communication_dtype=FP16", "communication_dtype=BF16 communicate_params=yes",
                                         "communication_dtype=FP16 communicate_params=yes" };

    for (int kind = 0; kind < 5; kind++) {
        char hypers[160];
        run r;
        float before[180];
        snprintf(hypers, sizeof hypers, BLOCKS "grafting_config=SGD %s", kinds[kind]);
        r = run_of(&matrix, hypers, 0);
        r.update[0] = calloc(180, sizeof(float));
        shampoo_run_begin(&r);
        for (int step = 0; step < 3; step++) {
            memcpy(before, r.weights[0], sizeof before);
            shampoo_run_draw(&r);
            shampoo_run_step(&r);
            for (int i = 0; i < 180; i++) {
                float w = r.weights[0][i], u = r.update[0][i];
                int dtype = kind == 1 || kind == 3 ? 0 : 1;
                if (kind < 3 || step > 0) assert_true(before[i] + u == w);
                if (kind == 1 || kind == 2) assert_true(u == rounded(u, dtype));
                if (kind >= 3) assert_true(w == rounded(w, dtype));
            }
        }
        shampoo_run_end(&r);
    }
}

TEST(float16_communication_overflows_above_65504)
{
    run r = run_of(&(pd_shape){ 1, { 2 } }, "lr=1e6 betas=0,1 grafting_config=SGD communication_dtype=FP16", 0);

    shampoo_run_begin(&r);
    r.gradient[0][0] = 1;
    shampoo_run_step(&r);
    assert_true(isinf(r.weights[0][0]) && isfinite(r.weights[0][1]));
    shampoo_run_end(&r);
}

/* Until the first roots of a block are in use, the block takes the steps of the graft. */
TEST(delayed_roots_are_waited_for_with_the_grafts_steps)
{
    static const char delayed[] = BLOCKS "grafting_config=Adam precondition_frequency=3 root_delay=2",
                      warm[] = BLOCKS "grafting_config=Adam start_preconditioning_step=100";

    assert_true(runs_agree(&matrix, delayed, warm, 4)); /* the roots of step 3 are first used in step 5 */
    assert_false(runs_agree(&matrix, delayed, warm, 5));
}

/* With root_delay=ready, tasks that are run at the end of a step have their roots ready in the next step, as with
 * root_delay=1. */
TEST(ready_roots_are_used_once_they_are_there)
{
    assert_true(runs_agree(&matrix, BLOCKS "grafting_config=SGD precondition_frequency=2 root_delay=1",
                           BLOCKS "grafting_config=SGD precondition_frequency=2 root_delay=ready", 7));
    assert_false(runs_agree(&matrix, BLOCKS "grafting_config=SGD precondition_frequency=2",
                            BLOCKS "grafting_config=SGD precondition_frequency=2 root_delay=1", 7));
}

TEST(every_shape_takes_ordinary_steps)
{
    static const pd_shape shapes[] = { { 0, { 0 } },
                                       { 1, { 1 } },
                                       { 2, { 1, 1 } },
                                       { 3, { 1, 1, 1 } },
                                       { 1, { 5 } },
                                       { 2, { 5, 3 } },
                                       { 8, { 2, 1, 2, 1, 2, 1, 3, 2 } },
                                       { 2, { 60, 1 } },
                                       { 2, { 1, 60 } },
                                       { 2, { 40, 30 } },
                                       { 3, { 6, 5, 9 } } };
    static const char *const kinds[] = {
        "max_preconditioner_dim=2",
        "max_preconditioner_dim=128 betas=0,0.9",
        "max_preconditioner_dim=1",
        "max_preconditioner_dim=3 use_merge_dims=no",
        "use_decoupled_weight_decay=no weight_decay=0.1 max_preconditioner_dim=35 momentum=0.9",
        "grafting_config=Adagrad preconditioner_dtype=float64 max_preconditioner_dim=32",
        "root_inverse_method=newton epsilon=0.1 max_preconditioner_dim=8",
        "root_inverse_method=higher_order epsilon=0.1 max_preconditioner_dim=8",
        "root_inverse_method=tracked epsilon=0.1 max_preconditioner_dim=16 betas=0.9,0.99 preconditioner_dtype=float64",
    };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            run r;
            if (shapes[s].rank == 0 && strstr(kinds[k], "use_merge_dims=no") != NULL) continue;
            r = run_of(&shapes[s], kinds[k], 3);
            shampoo_run_moves(&r, 3);
        }
}

TEST(a_dimension_of_0_has_no_state_and_takes_steps)
{
    static const pd_shape shapes[] = { { 1, { 0 } }, { 2, { 0, 4 } }, { 3, { 3, 0, 0 } } };

    for (int s = 0; s < 3; s++) {
        run r = run_of(&shapes[s], "grafting_config=Adam momentum=0.9", 3);
        shampoo_run_all(&r);
        assert_int_equal(pd_model_state_bytes(r.model), 0);
        shampoo_run_end(&r);
    }
}

/* Large blocks are used in place. Blocks at the edge of the tensor are copied to scratch memory. */
TEST(every_block_has_the_scratch_memory_that_it_takes)
{
    static const pd_shape shapes[] = {
        { 2, { 360, 301 } }, { 2, { 190, 400 } }, { 3, { 30, 50, 40 } }, { 3, { 64, 64, 9 } }, { 1, { 300 } }
    };
    static const char *const kinds[] = { "max_preconditioner_dim=200", "max_preconditioner_dim=185 betas=0,1",
                                         "max_preconditioner_dim=40 use_decoupled_weight_decay=no",
                                         "max_preconditioner_dim=200 preconditioner_dtype=float64" };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            pd_declaration param = { .name = "w", .shape = shapes[s], .hypers = shampoo_hypers("shampoo", kinds[k]) };
            pd_plan plan;
            assert_int_equal(pd_plan_make(&plan, &param, (double[PD_MAX_MODEL_STATS]){ 0 }, NULL), PD_OK);
            assert_true(plan.n_blocks > 0);
            for (size_t b = 0; b < plan.n_blocks; b++) {
                shampoo_scratch parts = pd_shampoo_scratch(&plan, &plan.blocks[b], param.hypers.value);
                assert_true(parts.gradient + parts.filtered + parts.direction + parts.products <=
                            (int64_t)plan.scratch_floats);
            }
            pd_plan_free(&plan);
        }
}

TEST(out_of_memory_is_told_and_leaves_nothing)
{
    pd_declaration param = { .name = "w",
                             .shape = { 2, { 9, 6 } },
                             .hypers = shampoo_hypers(
                                 "shampoo", BLOCKS "grafting_config=Adam momentum=0.9 root_inverse_method=tracked") };

    assert_true(oom_each(shampoo_try_model, &param) > 10);
}

static double trace_of(const shampoo_run *r, int64_t side)
{
    float *L = shampoo_slot(r, "factor_matrices", 0, 0, side * side);
    double trace = 0;

    for (int64_t i = 0; i < side; i++) trace += (double)L[i * side + i];
    free(L);
    return trace;
}

/* Returns how much the first factor of a block of 12 x 4 grows from step 40 to step 100. Roots begin in step 20, when
 * the factors have full rank. */
static double growth_of_kl(const char *more)
{
    char list[300];
    shampoo_run r;
    double before = 0, after;

    snprintf(list, sizeof list,
             "lr=0.001 betas=0.9,0.9 use_merge_dims=no inv_root_override=2 start_preconditioning_step=20 "
             "preconditioner_config=RootInvKLShampoo %s",
             more);
    r = shampoo_run_of("shampoo", &(pd_shape){ 2, { 12, 4 } }, list, 100);
    shampoo_run_begin(&r);
    for (int step = 1; step <= 100; step++) {
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        if (step == 40) before = trace_of(&r, 12);
    }
    after = trace_of(&r, 12);
    shampoo_run_end(&r);
    return after / before;
}

/* The factor of the longer side shrinks by (1 - beta2) (12 - 4) / (12 + 4) a step: here to 1/20 in 60 steps. */
TEST(factors_of_kl_shampoo_drift_unless_they_are_normalized)
{
    assert_true(growth_of_kl("") < 0.2);
    assert_true(fabs(log(growth_of_kl("preconditioner_config.normalize=yes"))) < log(2));
    assert_true(fabs(log(growth_of_kl("preconditioner_config.trace_scaling_exponent=1"))) < log(2));
}

TEST(a_drift_of_kl_shampoo_is_warned_of)
{
    pd_hypers drifts = shampoo_hypers("shampoo", "preconditioner_config=RootInvKLShampoo inv_root_override=2"),
              holds = shampoo_hypers("shampoo", "preconditioner_config=RootInvKLShampoo inv_root_override=2 "
                                                "preconditioner_config.normalize=yes");

    assert_non_null(strstr(drifts.row->warning(&drifts), "normalize=yes"));
    assert_null(holds.row->warning(&holds));
}

TEST(threads_agree_on_kl_shampoo)
{
    shampoo_assert_threads_agree("shampoo", &(pd_shape){ 3, { 10, 6, 5 } },
                                 "lr=0.01 preconditioner_config=RootInvKLShampoo max_preconditioner_dim=4 "
                                 "use_merge_dims=no epsilon=1e-4 precondition_frequency=2 betas=0.9,0.9",
                                 6);
    shampoo_assert_threads_agree("shampoo", &(pd_shape){ 2, { 10, 6 } },
                                 "lr=0.01 preconditioner_config=RootInvKLShampoo preconditioner_dtype=float64 "
                                 "use_merge_dims=no epsilon=1e-4 use_decoupled_weight_decay=no weight_decay=0.1",
                                 4);
}
