/* Tests properties of the optimizer kron. Its bits must not depend on the number of threads, nor on whether the step
 * thread or a preconditioner task computes. Other tests here: the steps in which factors change, delays, scanned
 * layers, memory, and extreme shapes and gradients.
 *
 * test_kron_factor.c and test_kron_twin.c test kron's formulas. tests/golden compares kron with recorded runs of the
 * original. */
#include "test.h"
#include "kron_plan.h"
#include "optimizer.h"
#include "shampoos.h"

typedef shampoo_run run;

#define PLAIN "preconditioner_update_probability=1 merge_small_dims=no partition_grads_into_blocks=no "
#define BFLOAT16 "learning_rate=1 preconditioner_lr=0 mu_dtype=bfloat16 "
#define SHAPE(...) (&(pd_shape){ .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ } })

static run run_of(const pd_shape *shape, const char *hypers, int steps)
{
    return shampoo_run_of("kron", shape, hypers, steps);
}

static void step_with(run *r, const pd_draws *draws, const double *hypers, uint64_t mask)
{
    pd_error err;
    pd_step_io io = { .gradient = r->gradient[0],
                      .before = r->weights[0],
                      .after = r->weights[0],
                      .draws = draws,
                      .hypers = hypers,
                      .hypers_mask = mask };

    if (pd_model_step(r->model, &io, &err) != PD_OK) fail_msg("%s", err.text);
}

TEST(the_number_of_threads_does_not_change_a_bit)
{
    static const char *const kinds[] = {
        "preconditioner_update_probability=1 block_size=32",
        "preconditioner_update_probability=0.5 block_size=20 root_delay=2 pad_blocks=no",
        "preconditioner_update_probability=1 root_delay=1 block_size=16 mu_dtype=bfloat16 precond_dtype=bfloat16",
        "preconditioner_update_probability=1 block_size=32 mu_dtype=bfloat16 mu_rounding=jit",
        "block_size=32 memory_save_mode=one_diag merge_small_dims=no",
    };
    static const pd_shape shapes[] = { { 2, { 300, 70 } }, { 3, { 20, 37, 21 } } };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < 2; s++) shampoo_assert_threads_agree("kron", &shapes[s], kinds[k], 5);
}

TEST(weights_in_place_and_beside_step_alike)
{
    run a = run_of(SHAPE(30, 11), "block_size=8 merge_small_dims=no", 0), b = a;
    float after[330];

    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    for (int t = 0; t < 3; t++) {
        shampoo_run_draw(&a);
        memcpy(b.gradient[0], a.gradient[0], sizeof after);
        shampoo_run_step(&a);
        assert_int_equal(
            pd_model_step(b.model, &(pd_step_io){ .gradient = b.gradient[0], .before = b.weights[0], .after = after },
                          NULL),
            PD_OK);
        memcpy(b.weights[0], after, sizeof after);
        assert_true(shampoo_same_bits(&a, &b));
    }
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

/* The probe is kron's random vector, one for each parameter. The parameter's name selects the random stream that its
 * numbers come from. Element i of the padded and stacked blocks gets number i of the stream. */
TEST(the_probe_is_the_parameter_s_stream_in_the_order_of_the_stacked_blocks)
{
    enum { BLOCKS = 6, PADDED = 64 };
    run a = run_of(SHAPE(20, 11), "preconditioner_update_probability=1 block_size=8 merge_small_dims=no", 0), b = a;
    float probe[BLOCKS * PADDED];

    a.param[0].seed = b.param[0].seed = 77;
    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    for (int t = 1; t <= 3; t++) {
        pd_draws draws = { .normal = probe, .uniform = 0.5, .n_normal = BLOCKS * PADDED };
        shampoo_run_draw(&a);
        memcpy(b.gradient[0], a.gradient[0], 220 * sizeof(float));
        pd_random_normal(pd_random_stream(77, "w"), (uint64_t)t, 0, probe, BLOCKS * PADDED);
        step_with(&a, NULL, NULL, 0);
        step_with(&b, &draws, NULL, 0);
        assert_true(shampoo_same_bits(&a, &b));
    }
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

TEST(another_seed_is_another_run)
{
    run a = run_of(SHAPE(9, 8), PLAIN, 3), b = a;

    b.param[0].seed = 1;
    assert_false(shampoo_same_runs(a, b));
}

TEST(accepted_options_change_nothing)
{
    static const char *const options[] = { "precond_update_precision=float32", "precond_update_precision=bfloat16",
                                           "precond_grads_precision=tensorfloat32", "lax_map_batch_size=2",
                                           "lax_map_scanned_layers=yes" };

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        assert_true(shampoo_runs_agree("kron", SHAPE(9, 8), "", options[i], 3));
}

static bool factors_are_as_at_first(const run *r, int64_t side)
{
    float *Q = shampoo_slot(r, "Q", 0, -1, side * side);
    bool same = true;

    for (int64_t i = 0; i < side * side; i++) same = same && Q[i] == (i % (side + 1) == 0 ? 1 : 0);
    free(Q);
    return same;
}

/* Returns the first step after which the factors differ from their initial values. */
static int first_change(const char *hypers)
{
    run r = run_of(SHAPE(5, 4), "", 0);
    int t = 0;

    shampoo_take(&r.param[0].hypers, "kron", hypers);
    shampoo_run_begin(&r);
    do {
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        t++;
    } while (t < 20 && factors_are_as_at_first(&r, 5));
    shampoo_run_end(&r);
    pd_hypers_free(&r.param[0].hypers);
    return t;
}

TEST(factors_change_every_so_many_steps)
{
    assert_int_equal(first_change("merge_small_dims=no partition_grads_into_blocks=no"), 1);
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=0.3"), 4);
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=table(0.1,0.1,0.3)"), 4);
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=precond_update_prob_schedule(max_prob=0.2)"),
                     5);
}

TEST(a_probability_that_came_down_to_0_updates_no_more)
{
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=table(0,0,0,0,1)"), 5);
    assert_int_equal(
        first_change(
            PLAIN "preconditioner_update_probability=precond_update_prob_schedule(min_prob=0,decay=1000,flat_start=0)"),
        20);
}

TEST(a_delay_counts_from_the_step_of_the_momentum)
{
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=0.3 root_delay=1"), 5);
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=0.3 root_delay=4"), 8);
    assert_int_equal(first_change(PLAIN "preconditioner_update_probability=0.3 root_delay=ready"), 5);
}

/* Factors must be the product of all updates.
 *
 * Run a computes the updates M1 in step 1 and M2 in step 2. Its factors after step 3 must be M2 M1.
 *
 * Run b has rate 0 in step 1, so that its M1 is the identity. Its factors after step 3 are M2. */
TEST(late_updates_multiply_the_factors_that_earlier_updates_changed)
{
    enum { SIDE = 5, STEPS = 3 };
    run a = run_of(SHAPE(SIDE, 4), PLAIN "b1=0 root_delay=1", 0), b = a;
    double none[PD_MAX_HYPERS] = { 0 };
    float *M1 = NULL, *M2, *Q;

    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    for (int t = 1; t <= STEPS; t++) {
        shampoo_run_draw(&a);
        memcpy(b.gradient[0], a.gradient[0], SIDE * 4 * sizeof(float));
        step_with(&a, NULL, NULL, 0);
        step_with(&b, NULL, none, t == 1 ? (uint64_t)1 << FACTOR_RATE : 0);
        if (t == 2) M1 = shampoo_slot(&a, "Q", 0, -1, SIDE * SIDE);
    }
    M2 = shampoo_slot(&b, "Q", 0, -1, SIDE * SIDE);
    Q = shampoo_slot(&a, "Q", 0, -1, SIDE * SIDE);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) sum += (double)M2[i * SIDE + k] * (double)M1[k * SIDE + j];
            assert_true(fabs((double)Q[i * SIDE + j] - sum) < 1e-6);
        }
    free(M1);
    free(M2);
    free(Q);
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

/* Takes five steps with a parameter of shape (6, 5). Then takes one step in which factors do not change, except that
 * they may be balanced. Writes the largest entry of each of the two factors. */
static void size_after_balancing(double uniform, double *first, double *second)
{
    run r = run_of(SHAPE(6, 5), PLAIN, 0);
    float probe[30], *Q0, *Q1;
    pd_draws draws = { .normal = probe, .uniform = 0.5, .n_normal = 30 };

    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    shampoo_fill(probe, 30, 1);
    for (int t = 0; t < 5; t++) step_with(&r, &draws, NULL, 0);
    draws.uniform = uniform;
    step_with(&r, &draws, (double[PD_MAX_HYPERS]){ 0 }, (uint64_t)1 << FACTOR_RATE);
    Q0 = shampoo_slot(&r, "Q", 0, -1, 36);
    Q1 = shampoo_slot(&r, "Q", 1, -1, 25);
    *first = *second = 0;
    for (int i = 0; i < 36; i++) *first = fmax(*first, fabs((double)Q0[i]));
    for (int i = 0; i < 25; i++) *second = fmax(*second, fabs((double)Q1[i]));
    free(Q0);
    free(Q1);
    shampoo_run_end(&r);
}

TEST(factors_are_balanced_where_the_draw_is_at_most_a_hundredth)
{
    double first, second, plain;

    size_after_balancing(0.5, &first, &second);
    plain = first / second;
    assert_true(fabs(plain - 1) > 1e-3);
    size_after_balancing(0.01, &first, &second);
    assert_true(fabs(first / second - 1) < 1e-5);
    size_after_balancing(0.0101, &first, &second);
    assert_true(first / second == plain);
}

/* In the first step the debiased momentum equals the gradient, whatever b1 is. */
TEST(the_first_step_does_not_depend_on_the_momentum)
{
    run a = run_of(SHAPE(5, 4), "b1=0.95", 1), b = run_of(SHAPE(5, 4), "b1=0", 1);

    shampoo_run_all(&a);
    shampoo_run_all(&b);
    for (int i = 0; i < 20; i++) assert_true(fabsf(a.weights[0][i] - b.weights[0][i]) < 1e-6f);
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

/* The expected values are those of JAX 0.10.2 with distributed_kron's lines (optax 0.2.8: tree_update_moment,
 * tree_bias_correction, tree_cast to bfloat16), executed operation by operation and under jax.jit. The factors stay the
 * identity, so a step at rate 1 subtracts the debiased momentum, if its root mean square does not exceed 1.1. */
TEST(a_bfloat16_momentum_is_rounded_as_by_jax_eagerly_or_under_jit)
{
    enum { N = 5, STEPS = 4 };
    static const float gradient[STEPS][N] = { { -0.802f, -1.324f, -0.248f, 0.42f, 1.136f },
                                              { 0.11f, -0.553f, -0.785f, 0.749f, 1.635f },
                                              { 0.273f, -1.233f, -0.958f, 1.6f, 0.203f },
                                              { -1.732f, -0.084f, -1.163f, -0.629f, -0.488f } };
    static const struct {
        const char *hypers;
        float momentum[N];
    } modes[] = {
        { BFLOAT16 "mu_rounding=eager", { -0.57498133f, -0.75706035f, -0.8266027f, 0.50145835f, 0.53109992f } },
        { BFLOAT16 "mu_rounding=jit", { -0.57570791f, -0.75919014f, -0.82547128f, 0.50083715f, 0.53673488f } },
    };

    for (size_t k = 0; k < 2; k++) {
        run r = run_of(SHAPE(N), modes[k].hypers, 0);
        shampoo_run_begin(&r);
        for (int t = 0; t < STEPS; t++) {
            memcpy(r.gradient[0], gradient[t], sizeof gradient[t]);
            for (int i = 0; i < N; i++) r.weights[0][i] = 0;
            shampoo_run_step(&r);
        }
        for (int i = 0; i < N; i++) assert_true(fabsf(r.weights[0][i] + modes[k].momentum[i]) < 3e-7f);
        shampoo_run_end(&r);
    }
}

/* A job that starts at step 3 counts its first step as the fourth. So it divides its first momentum, 0.5 times the
 * gradient, by 1 - 0.5^4 instead of 1 - 0.5. The factors do not change in this test. */
TEST(a_job_that_starts_later_counts_on)
{
    run a = run_of(SHAPE(3), "b1=0.5 preconditioner_lr=0 learning_rate=1", 0), b = a;

    b.param[0].start_step = 3;
    shampoo_run_begin(&a);
    shampoo_run_begin(&b);
    for (int i = 0; i < 3; i++)
        a.gradient[0][i] = b.gradient[0][i] = 0.25f * (float)(i + 1), a.weights[0][i] = b.weights[0][i] = 0;
    shampoo_run_step(&a);
    shampoo_run_step(&b);
    for (int i = 0; i < 3; i++) {
        assert_true(a.weights[0][i] == -0.25f * (float)(i + 1));
        assert_true(fabsf(b.weights[0][i] * 0.9375f - a.weights[0][i] * 0.5f) < 1e-7f);
    }
    shampoo_run_end(&a);
    shampoo_run_end(&b);
}

/* Returns a parameter's first weight, which begins as 2, after a step with a gradient that is nearly 0. */
static float decayed(const pd_shape *shape, const char *hypers)
{
    run r = run_of(shape, hypers, 0);
    float weight;

    shampoo_run_begin(&r);
    r.weights[0][0] = 2;
    shampoo_run_step(&r);
    weight = r.weights[0][0];
    shampoo_run_end(&r);
    return weight;
}

TEST(weights_decay_where_there_are_dimensions_enough)
{
    assert_true(decayed(SHAPE(3, 2), "learning_rate=0.5 weight_decay=0.25") == 1.75f);
    assert_true(decayed(SHAPE(3, 2), "learning_rate=0.5 weight_decay=0.25 weight_decay_min_ndim=2") == 1.75f);
    assert_true(decayed(SHAPE(6), "learning_rate=0.5 weight_decay=0.25") == 1.75f);
    assert_true(decayed(SHAPE(6), "learning_rate=0.5 weight_decay=0.25 weight_decay_min_ndim=2") == 2);
    assert_true(decayed(SHAPE(3, 2), "learning_rate=0.5 weight_decay=0.25 scale_by_kron_only=yes") == 2);
}

HOLDS(the_bare_update_is_that_of_rate_one_without_decay,
      assert_true(shampoo_runs_agree("kron", SHAPE(9, 8), "learning_rate=1",
                                     "scale_by_kron_only=yes learning_rate=0.1 weight_decay=0.3", 3)));

TEST(the_update_is_what_was_added)
{
    run r = run_of(SHAPE(9, 8), "weight_decay=0.1 learning_rate=0.1", 0);
    float before[72];

    r.update[0] = calloc(72, sizeof(float));
    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    memcpy(before, r.weights[0], sizeof before);
    shampoo_run_step(&r);
    for (int i = 0; i < 72; i++) assert_true(before[i] + r.update[0][i] == r.weights[0][i]);
    shampoo_run_end(&r);
}

/* The root mean square of the update, over all layers together, is at most 1.1, however large the gradient is. */
TEST(the_root_mean_square_of_an_update_is_clipped)
{
    run r = run_of(SHAPE(2, 9, 8), PLAIN "scale_by_kron_only=yes preconditioner_init_scale=100", 0);
    double squares = 0;

    r.param[0].axes = "layers,,";
    r.update[0] = calloc(144, sizeof(float));
    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    shampoo_run_step(&r);
    for (int i = 0; i < 144; i++) squares += (double)r.update[0][i] * (double)r.update[0][i];
    assert_true(fabs(sqrt(squares / 144) - 1.1) < 1e-5);
    shampoo_run_end(&r);
}

TEST(padding_is_not_inert_unless_it_is_left_out)
{
    assert_false(shampoo_runs_agree("kron", SHAPE(9, 7), "merge_small_dims=no block_size=16",
                                    "merge_small_dims=no partition_grads_into_blocks=no", 2));
    assert_true(shampoo_runs_agree("kron", SHAPE(9, 7), "merge_small_dims=no block_size=16 pad_blocks=no",
                                   "merge_small_dims=no partition_grads_into_blocks=no", 2));
    assert_true(shampoo_runs_agree("kron", SHAPE(16, 8), "merge_small_dims=no block_size=8 pad_blocks=no",
                                   "merge_small_dims=no block_size=8", 2));
}

TEST(a_layer_has_factors_of_its_own)
{
    run r = run_of(SHAPE(2, 5, 4), PLAIN, 0);
    float *first, *second;

    r.param[0].axes = "layers,embed,mlp";
    shampoo_run_begin(&r);
    shampoo_run_draw(&r);
    for (int i = 0; i < 20; i++) r.gradient[0][i] = 0; /* the first of two layers has no gradient (zeros) */
    shampoo_run_step(&r);
    first = shampoo_slot(&r, "Q", 0, 0, 25);
    second = shampoo_slot(&r, "Q", 0, 1, 25);
    assert_true(memcmp(first, second, 25 * sizeof(float)) != 0);
    for (int i = 0; i < 5; i++)
        assert_true(first[i * 6] > 1); /* the factors of the first layer, which has no gradient, grow */
    free(first);
    free(second);
    shampoo_run_end(&r);
}

TEST(where_the_factors_of_layers_are_updated_does_not_change_a_bit)
{
    static const char *const kinds[] = {
        "preconditioner_update_probability=1 block_size=8",
        "preconditioner_update_probability=0.5 block_size=8 merge_small_dims=no pad_blocks=no precond_dtype=bfloat16",
        PLAIN "memory_save_mode=one_diag"
    };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char text[256];
        run pool = run_of(SHAPE(3, 2, 11, 9), kinds[k], 4), here;
        snprintf(text, sizeof text, "%s lax_map_scanned_layers=yes", kinds[k]);
        here = run_of(SHAPE(3, 2, 11, 9), text, 4);
        pool.param[0].axes = here.param[0].axes = "layers,stack,embed,mlp";
        here.threads = 3;
        assert_true(shampoo_same_runs(pool, here));
    }
}

TEST(factors_begin_with_their_share_of_the_initial_scale)
{
    run r = run_of(SHAPE(4, 1, 3), PLAIN "preconditioner_init_scale=27", 0);
    float *Q;

    shampoo_run_begin(&r);
    Q = shampoo_slot(&r, "Q", 0, -1, 16);
    for (int i = 0; i < 16; i++) assert_true(Q[i] == (i % 5 == 0 ? 3 : 0));
    free(Q);
    Q = shampoo_slot(&r, "Q", 1, -1, 1);
    assert_true(Q[0] == 3);
    free(Q);
    shampoo_run_end(&r);
}

TEST(every_shape_steps)
{
    static const pd_shape shapes[] = { { 0, { 0 } },
                                       { 1, { 1 } },
                                       { 1, { 17 } },
                                       { 2, { 1, 9 } },
                                       { 2, { 9, 1 } },
                                       { 3, { 1, 1, 1 } },
                                       { 5, { 2, 3, 1, 4, 2 } },
                                       { 8, { 2, 1, 2, 1, 2, 1, 2, 2 } },
                                       { 2, { 0, 4 } },
                                       { 1, { 0 } },
                                       { 3, { 5, 0, INT64_MAX / 100 } } };
    static const char *const kinds[] = { "", "block_size=3 merge_small_dims=no",
                                         "block_size=3 pad_blocks=no min_ndim_triangular=0",
                                         PLAIN "memory_save_mode=one_diag",
                                         "b1=0 mu_dtype=bfloat16 precond_dtype=bfloat16" };

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            run r = run_of(&shapes[s], kinds[k], 3);
            float before = 0;
            shampoo_run_begin(&r);
            before = r.weights[0][0];
            for (int t = 0; t < 3; t++) {
                shampoo_run_draw(&r);
                shampoo_run_step(&r);
            }
            assert_true(shampoo_all_finite(r.weights[0], shampoo_elements(&r.param[0])));
            if (shampoo_elements(&r.param[0]) > 0) assert_true(r.weights[0][0] != before);
            shampoo_run_end(&r);
        }
}

TEST(gradients_of_any_size_move_weights_by_finite_steps)
{
    for (int power = -60; power <= 60; power += 20) {
        run r = run_of(SHAPE(6, 5), PLAIN "learning_rate=1", 0);
        double moved = 0;
        shampoo_run_begin(&r);
        for (int i = 0; i < 30; i++) r.weights[0][i] = 0;
        for (int t = 0; t < 200; t++) {
            shampoo_run_draw(&r);
            for (int i = 0; i < 30; i++) r.gradient[0][i] *= ldexpf(1, power);
            shampoo_run_step(&r);
        }
        for (int i = 0; i < 30; i++) moved += (double)r.weights[0][i] * (double)r.weights[0][i];
        if (!(isfinite(moved) && moved > 0)) fail_msg("gradients of 2^%d move by %g", power, moved);
        shampoo_run_end(&r);
    }
}

TEST(under_zeros_weights_rest_and_factors_grow_unless_they_are_told_not_to)
{
    for (int skips = 0; skips < 2; skips++) {
        run r = run_of(SHAPE(5, 4), skips ? PLAIN "skip_zero_updates=yes" : PLAIN, 0);
        float before[20];
        shampoo_run_begin(&r);
        memcpy(before, r.weights[0], sizeof before);
        for (int t = 0; t < 5; t++) shampoo_run_step(&r);
        assert_memory_equal(before, r.weights[0], sizeof before);
        assert_int_equal(factors_are_as_at_first(&r, 5), skips);
        shampoo_run_end(&r);
    }
}

TEST(the_counter_runs_on_where_an_update_is_skipped)
{
    run r = run_of(SHAPE(5, 4), PLAIN "preconditioner_update_probability=0.5 skip_zero_updates=yes", 0);

    shampoo_run_begin(&r);
    for (int t = 1; t <= 5; t++) {
        float *counter;
        shampoo_run_step(&r);
        counter = shampoo_slot(&r, "update_counter", -1, -1, 1);
        assert_true(counter[0] == (float)(t % 2));
        free(counter);
    }
    shampoo_run_end(&r);
}

/* If the squares of an update overflow float32, its root mean square is infinite, as in the original. The clipped
 * update is then 0 and moves no weight. */
TEST(an_update_whose_squares_overflow_moves_nothing)
{
    run r = run_of(SHAPE(3), "preconditioner_lr=0 preconditioner_init_scale=1e15", 0);
    float before[3];

    shampoo_run_begin(&r);
    memcpy(before, r.weights[0], sizeof before);
    for (int i = 0; i < 3; i++) r.gradient[0][i] = 1;
    shampoo_run_step(&r); /* each element of the update is 1e30 */
    assert_memory_equal(before, r.weights[0], sizeof before);
    shampoo_run_end(&r);
}

TEST(nan_reaches_the_weights_and_no_factor)
{
    static const char *const kinds[] = { PLAIN, PLAIN "lax_map_scanned_layers=yes" };

    for (size_t k = 0; k < 2; k++) {
        run r = run_of(SHAPE(2, 5, 4), kinds[k], 0);
        float *Q;
        r.param[0].axes = "layers,,";
        shampoo_run_begin(&r);
        shampoo_run_draw(&r);
        r.gradient[0][3] = NAN;
        shampoo_run_step(&r);
        assert_true(isnan(r.weights[0][0]));
        Q = shampoo_slot(&r, "Q", 0, -1, 50);
        assert_true(shampoo_all_finite(Q, 50));
        free(Q);
        shampoo_run_end(&r);
    }
}

HOLDS(an_update_without_memory_leaves_the_factors,
      shampoo_assert_steps_without_memory("kron", SHAPE(12, 5), "merge_small_dims=no block_size=8", 2));
