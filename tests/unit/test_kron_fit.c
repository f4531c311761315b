/* Tests properties of the updates of kron's factors that psgd_torch has (dQ other than EQ), and of its initial scale.
 * tests/golden/test_psgd.c compares them with recorded runs of the original. */
#include "test.h"
#include "kron_plan.h"
#include "shampoos.h"

typedef shampoo_run run;

#define PLAIN "preconditioner_update_probability=1 merge_small_dims=no partition_grads_into_blocks=no "
#define SHAPE(...) (&(pd_shape){ .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ } })

static const char *const rules[] = { "dQ=QUAD ", "dQ=QUAD4P ", "dQ=Q0.5EQ1.5 ", "dQ=PRO4P ",
                                     "dQ=QEP ",  "dQ=QEQ ",    "dQ=EQ_psgd " };
enum { RULES = sizeof rules / sizeof *rules };

/* Makes a run with hyperparameters that are given in two parts. */
static run run_of(const pd_shape *shape, const char *rule, const char *hypers, int steps)
{
    char text[512];

    snprintf(text, sizeof text, "%s%s", rule, hypers);
    return shampoo_run_of("kron", shape, text, steps);
}

TEST(the_number_of_threads_does_not_change_a_bit)
{
    static const char *const kinds[] = { "preconditioner_update_probability=1 merge_small_dims=no block_size=32",
                                         "preconditioner_update_probability=0.5 block_size=20 root_delay=2 b1=0",
                                         "preconditioner_update_probability=1 root_delay=1 block_size=16 "
                                         "mu_dtype=bfloat16 whiten_grad=no" };
    static const pd_shape shapes[] = { { 2, { 130, 70 } }, { 3, { 12, 37, 21 } } };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < RULES; i++) {
            char text[256];
            snprintf(text, sizeof text, "%s%s", rules[i], kinds[k]);
            for (size_t s = 0; s < 2; s++) shampoo_assert_threads_agree("kron", &shapes[s], text, 4);
        }
}

TEST(where_the_factors_of_layers_are_updated_does_not_change_a_bit)
{
    static const char *const kinds[] = { "block_size=8 merge_small_dims=no",
                                         "preconditioner_update_probability=0.5 block_size=8 merge_small_dims=no",
                                         PLAIN "memory_save_mode=one_diag" };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < RULES; i++) {
            char text[256];
            run pool = run_of(SHAPE(3, 2, 11, 9), rules[i], kinds[k], 4), here;
            snprintf(text, sizeof text, "%s lax_map_scanned_layers=yes", kinds[k]);
            here = run_of(SHAPE(3, 2, 11, 9), rules[i], text, 4);
            pool.param[0].axes = here.param[0].axes = "layers,stack,embed,mlp";
            here.threads = 3;
            assert_true(shampoo_same_runs(pool, here));
        }
}

/* The factors that a run with a delay of one step has after step t are those that a run without delay had after the
 * step before. Factors do not depend on weights, so equal gradients are enough. */
TEST(with_a_delay_of_one_step_each_update_begins_with_the_factors_of_the_one_before)
{
    enum { STEPS = 6 };

    for (int i = 0; i < RULES; i++) {
        run now = run_of(SHAPE(5, 7), rules[i], PLAIN, 0),
            late = run_of(SHAPE(5, 7), rules[i], PLAIN "root_delay=1", 0);
        float *before = NULL;
        shampoo_run_begin(&now);
        shampoo_run_begin(&late);
        for (int t = 1; t <= STEPS; t++) {
            float *Q;
            shampoo_run_draw(&now);
            memcpy(late.gradient[0], now.gradient[0], 35 * sizeof(float));
            shampoo_run_step(&now);
            shampoo_run_step(&late);
            Q = shampoo_slot(&late, "Q", 0, -1, 25);
            if (t > 1) assert_memory_equal(Q, before, 25 * sizeof *Q);
            free(Q);
            free(before);
            before = shampoo_slot(&now, "Q", 0, -1, 25);
        }
        free(before);
        shampoo_run_end(&now);
        shampoo_run_end(&late);
    }
}

/* Takes many steps with random gradients of one size, and returns the root mean square of the last update. */
static double amplitude(const char *rule, float size)
{
    enum { M = 12, N = 9, STEPS = 400 };
    run r = run_of(SHAPE(M, N), rule, PLAIN "b1=0 scale_by_kron_only=yes grad_clip_max_amps=1e30,1e30", 0);
    double squares = 0;

    r.update[0] = calloc(M * N, sizeof(float));
    shampoo_run_begin(&r);
    for (int t = 0; t < STEPS; t++) {
        shampoo_fill(r.gradient[0], M * N, size);
        shampoo_run_step(&r);
        if (t < STEPS - 50) continue;
        for (int i = 0; i < M * N; i++) squares += (double)r.update[0][i] * (double)r.update[0][i];
    }
    shampoo_run_end(&r);
    return sqrt(squares / (50 * M * N));
}

TEST(updates_come_to_a_root_mean_square_of_about_1_whatever_the_size_of_gradients)
{
    static const float sizes[] = { 1e-3f, 1, 1e2f };

    for (int i = 0; i < RULES; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            double is = amplitude(rules[i], sizes[s]);
            if (!(is > 0.7 && is < 1.4)) fail_msg("%s: gradients of %g give updates of %g", rules[i], sizes[s], is);
        }
}

static double asymmetry(const float *Q, int n)
{
    double skew = 0, all = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double difference = (double)Q[i * n + j] - (double)Q[j * n + i];
            skew += difference * difference;
            all += (double)Q[i * n + j] * (double)Q[i * n + j];
        }
    return sqrt(skew / all);
}

/* Returns how far a factor may be from a symmetric matrix; 2: as far as it likes. */
static double asymmetry_of(const char *rule)
{
    if (strstr(rule, "QUAD") != NULL) return 0;
    return strstr(rule, "Q0.5EQ1.5") != NULL ? 0.1 : strstr(rule, "PRO4P") != NULL ? 0.001 : 2;
}

TEST(factors_are_symmetric_or_nearly_so_where_their_rule_says_so)
{
    enum { N = 8 };

    for (int i = 0; i < RULES; i++) {
        run r = run_of(SHAPE(N, 9), rules[i], PLAIN, 0);
        float *Q;
        shampoo_run_begin(&r);
        for (int t = 0; t < 50; t++) {
            shampoo_run_draw(&r);
            shampoo_run_step(&r);
        }
        Q = shampoo_slot(&r, "Q", 0, -1, N * N);
        assert_true(asymmetry(Q, N) <= asymmetry_of(rules[i]));
        for (int j = 0; j < N; j++) assert_true(Q[j * (N + 1)] > 0);
        for (int j = 1; j < N && strstr(rules[i], "EQ_psgd") != NULL; j++)
            for (int k = 0; k < j; k++) assert_true(Q[j * N + k] == 0);
        free(Q);
        shampoo_run_end(&r);
    }
}

/* The noise of the damping bounds the factors, so that gradients can come back. */
TEST(gradients_of_zero_for_a_thousand_steps_leave_weights_and_factors_finite)
{
    for (int i = 0; i < RULES; i++) {
        run r = run_of(SHAPE(6, 5), rules[i], PLAIN, 0);
        shampoo_run_begin(&r);
        for (int t = 0; t < 1010; t++) {
            shampoo_fill(r.gradient[0], 30, t < 1000 ? 0 : 1);
            shampoo_run_step(&r);
            assert_true(shampoo_all_finite(r.weights[0], 30));
        }
        shampoo_run_end(&r);
    }
}

/* The factors stay the identity, so a step at rate 1 subtracts the momentum. Gradients are 1, 2, 3, ...: their mean
 * after step t is (t + 1) / 2, until the old momentum has the weight b1 = 0.5 from step 3 on. */
TEST(the_momentum_is_the_mean_of_the_gradients_at_first)
{
    static const float means[] = { 1, 1.5f, 2.25f, 3.125f };
    run r = run_of(SHAPE(3), rules[0], PLAIN "b1=0.5 learning_rate=1 preconditioner_lr=0 grad_clip_max_amps=9,9", 0);

    shampoo_run_begin(&r);
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 3; i++) r.gradient[0][i] = (float)(t + 1), r.weights[0][i] = 0;
        shampoo_run_step(&r);
        for (int i = 0; i < 3; i++) assert_true(r.weights[0][i] == -means[t]);
    }
    shampoo_run_end(&r);
}

TEST(updates_are_clipped_by_their_root_mean_square_and_then_element_by_element)
{
    run r = run_of(SHAPE(2), rules[0], PLAIN "b1=0 learning_rate=1 preconditioner_lr=0 grad_clip_max_amps=5,6", 0);

    shampoo_run_begin(&r);
    for (int i = 0; i < 2; i++) r.gradient[0][i] = i == 0 ? -6 : 8, r.weights[0][i] = 0;
    shampoo_run_step(&r); /* the root mean square, sqrt(50), becomes 5: the elements become 4.24 and 5.66 */
    assert_true(fabsf(r.weights[0][0] - 4.2426407f) < 1e-5f && fabsf(r.weights[0][1] + 5.6568542f) < 1e-5f);
    r.gradient[0][0] = 0, r.weights[0][1] = 0;
    shampoo_run_step(&r); /* the root mean square of 0 and 8 is 5.66, and 8 becomes 7.07 */
    assert_true(r.weights[0][1] == -6);
    shampoo_run_end(&r);
}

/* Checks how many numbers the factor of a dimension has: a diagonal one as many as the dimension has elements. */
static void has_numbers(const char *hypers, const pd_shape *shape, int dim, int64_t n)
{
    run r = run_of(shape, "merge_small_dims=no pad_blocks=no ", hypers, 0);

    shampoo_run_begin(&r);
    free(shampoo_slot(&r, "Q", dim, -1, n)); /* fails if the slot has another number */
    shampoo_run_end(&r);
}

TEST(long_dimensions_of_skewed_shapes_get_diagonal_factors)
{
    has_numbers("dQ=QUAD", SHAPE(12, 5), 0, 12);
    has_numbers("dQ=QUAD", SHAPE(12, 5), 1, 25);
    has_numbers("dQ=QUAD preconditioner_max_skew=3", SHAPE(12, 5), 0, 144);
    has_numbers("dQ=EQ", SHAPE(12, 5), 0, 144);
}

TEST(every_shape_steps)
{
    static const pd_shape shapes[] = { { 0, { 0 } },    { 1, { 17 } },      { 2, { 1, 9 } },
                                       { 2, { 9, 1 } }, { 3, { 1, 1, 1 } }, { 8, { 2, 1, 2, 1, 2, 1, 2, 2 } },
                                       { 2, { 0, 4 } } };
    static const char *const kinds[] = { "", "block_size=3 merge_small_dims=no",
                                         "block_size=3 root_delay=1 merge_small_dims=no preconditioner_max_skew=1e9 "
                                         "min_ndim_triangular=0 precond_dtype=float32" };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int i = 0; i < RULES; i++) {
                run r = run_of(&shapes[s], rules[i], kinds[k], 3);
                shampoo_run_all(&r);
                assert_true(shampoo_all_finite(r.weights[0], shampoo_elements(&r.param[0])));
                shampoo_run_end(&r);
            }
}

TEST(an_update_without_memory_leaves_the_factors)
{
    for (int i = 0; i < RULES; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s" PLAIN, rules[i]);
        shampoo_assert_steps_without_memory("kron", SHAPE(12, 5), text, 2);
    }
}

TEST(factors_in_bfloat16_train_and_quad4p_refuses_them)
{
    pd_hypers hypers;
    pd_error err = { 0 };
    run r = run_of(SHAPE(9, 8), rules[0], PLAIN "precond_dtype=bfloat16", 0);

    shampoo_run_moves(&r, 20);
    for (int i = 0; i < 2; i++) {
        shampoo_take(&hypers, "kron", i == 0 ? "dQ=QUAD4P precond_dtype=bfloat16" : "dQ=PRO4P precond_dtype=bfloat16");
        assert_int_not_equal(pd_hypers_check(&hypers, &err), PD_OK);
        assert_non_null(strstr(err.text, "dQ=QUAD4P and PRO4P of kron need factors in float32"));
        pd_hypers_free(&hypers);
    }
}

/* Takes a step with one gradient whose elements have the magnitude `size`, and returns the root mean square of what is
 * added to weights that are kept by a rate of 1. */
static double first_update(const char *rule, const pd_shape *shape, float size)
{
    run r = run_of(shape, rule, PLAIN "b1=0 learning_rate=1 preconditioner_lr=0 preconditioner_init_scale=auto", 0);
    int64_t n = shampoo_elements(&r.param[0]);
    double squares = 0;

    shampoo_run_begin(&r);
    for (int64_t i = 0; i < n; i++) r.gradient[0][i] = i % 3 == 0 ? -size : size, r.weights[0][i] = 0;
    shampoo_run_step(&r);
    for (int64_t i = 0; i < n; i++) squares += (double)r.weights[0][i] * (double)r.weights[0][i];
    shampoo_run_end(&r);
    return sqrt(squares / (double)n);
}

TEST(with_an_automatic_scale_the_first_update_has_a_root_mean_square_of_1)
{
    static const float sizes[] = { 1e-6f, 1, 1e4f };

    for (int i = 0; i < RULES + 1; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const char *rule = i < RULES ? rules[i] : "dQ=EQ ";
            assert_true(fabs(first_update(rule, SHAPE(7, 6), sizes[s]) - 1) < 1e-4);
            assert_true(fabs(first_update(rule, SHAPE(2, 3, 4), sizes[s]) - 1) < 1e-4);
        }
}

/* Each parameter has a scale of its own, which no later gradient changes, and a reset begins anew. */
TEST(an_automatic_scale_comes_from_the_first_gradient_alone)
{
    run r =
        run_of(SHAPE(3), rules[0], PLAIN "b1=0 learning_rate=1 preconditioner_lr=0 preconditioner_init_scale=auto", 0);

    shampoo_run_begin(&r);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 3; i++) r.gradient[0][i] = t == 1 ? 0.5f : 4, r.weights[0][i] = 0;
        shampoo_run_step(&r);
        for (int i = 0; i < 3; i++) assert_true(fabsf(r.weights[0][i] + (t == 1 ? 0.125f : 1)) < 1e-5f);
    }
    shampoo_run_end(&r);
}

TEST(factors_of_an_automatic_scale_begin_with_the_first_finite_gradient)
{
    run r = run_of(SHAPE(4, 3), rules[0], PLAIN "preconditioner_init_scale=auto b1=0", 0);
    float *Q;

    shampoo_run_begin(&r);
    for (int i = 0; i < 12; i++) r.gradient[0][i] = NAN;
    shampoo_run_step(&r);
    shampoo_run_draw(&r);
    for (int i = 0; i < 12; i++) r.weights[0][i] = 0;
    shampoo_run_step(&r);
    Q = shampoo_slot(&r, "Q", 1, -1, 9);
    assert_true(Q[0] > 0 && shampoo_all_finite(Q, 9) && shampoo_all_finite(r.weights[0], 12));
    free(Q);
    shampoo_run_end(&r);
}
