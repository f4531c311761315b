/* Tests when recorded optimizer state counts as equal to the state of a replay. */
#include "test.h"
#include "replay_state.h"
#include "replayed.h"
#include "optimizer_ops.h"

/* A recorded run of sgd on a matrix, with momentum 0.5 and lr 0.5. Step 1: b = g, then w <- w - 0.5 b. Step 2: b =
 * 0.5 b + g, then the same update of w. */
static const float w0[4] = { 1, 2, 3, 4 }, g1[4] = { 2, 4, 0, 8 }, w1[4] = { 0, 0, 3, 0 }, g2[4] = { 8, 5, 1, 0 },
                   w2[4] = { -4.5f, -3.5f, 2.5f, -2 };
static const float b1[4] = { 2, 4, 0, 8 }, b2[4] = { 9, 7, 1, 4 };

static tracefile momentum_file(void)
{
    tracefile file =
        tracefile_of("torch_optim", "by_hand", "2", "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"momentum\": 0.5}");

    tracefile_add_matrix(&file, "param/0000/w", w0, 2, 2);
    tracefile_add_matrix(&file, "grad/0001/w", g1, 2, 2);
    tracefile_add_matrix(&file, "param/0001/w", w1, 2, 2);
    tracefile_add_matrix(&file, "grad/0002/w", g2, 2, 2);
    tracefile_add_matrix(&file, "param/0002/w", w2, 2, 2);
    return file;
}

TEST(the_same_state_is_ok_at_the_steps_that_have_it)
{
    tracefile file = momentum_file();
    pd_replay_result r;

    tracefile_add_matrix(&file, "state/0001/w/momentum_buffer", b1, 2, 2);
    tracefile_add_matrix(&file, "state/0002/w/momentum_buffer", b2, 2, 2);
    r = replayed(&file);
    if (r.outcome != PD_REPLAY_OK) fail_msg("%s", r.why.text);
    assert_true(r.state.compared == 2 && r.state.error == 0);
    pd_replay_result_free(&r);
}

TEST(another_state_fails_by_name_though_the_weights_agree)
{
    static const float off[4] = { 9, 7, 1, 4.001f };
    tracefile file = momentum_file();
    pd_replay_result r;

    tracefile_add_matrix(&file, "state/0001/w/momentum_buffer", b1, 2, 2);
    tracefile_add_matrix(&file, "state/0002/w/momentum_buffer", off, 2, 2);
    r = replayed(&file);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_true(r.verdict.error == 0 && fabs(r.state.error - 1e-3 / sqrt(147)) < 1e-6);
    assert_string_equal(r.state.worst, "state/0002/w/momentum_buffer");
    pd_replay_result_free(&r);
    r = replayed_by(&file, &(pd_replay_options){ .local = true });
    assert_int_equal(r.outcome, PD_REPLAY_OK);
    assert_int_equal(r.state.compared, 0);
    pd_replay_result_free(&r);
}

TEST(state_has_a_noise_of_its_own)
{
    static const float off[4] = { 9, 7, 1, 4.001f }, w_off[4] = { -4.5f, -3.5f, 2.5f, -2.001f };
    tracefile file = momentum_file();

    tracefile_add_matrix(&file, "state/0002/w/momentum_buffer", off, 2, 2);
    tracefile_meta(&file, "noise_state", "1e-4");
    assert_outcome(&file, PD_REPLAY_OK, "");
    tracefile_meta(&file, "noise", "1e-4");
    tracefile_meta(&file, "noise_state", "1e-6");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    tracefile_meta(&file, "noise", "0");
    tracefile_meta(&file, "noise_state", "1e-4");
    file.entry[4].at = w_off;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* b2 = 0.5 (2^24 - 1) - (2^23 - 1) = 0.5. Two large numbers cancel, and the result is as small as their last bit. So
 * the recorded 0.625 differs from 0.5 by no more than rounding. */
TEST(state_may_differ_by_what_the_last_bits_of_gradients_do_to_it)
{
    static const float zeros[4] = { 0 }, big[4] = { 16777215, 4, 0, 8 }, minus[4] = { -8388607, 5, 1, 0 };
    static const float w_1[4] = { -8388607.5f, -2, 0, -4 }, w_2[4] = { -8388607.75f, -5.5f, -.5f, -6 };
    static const float left[4] = { .5f, 7, 1, 4 }, near[4] = { .625f, 7, 1, 4 }, far[4] = { .5f, .07f, .1f, .04f };
    tracefile file = momentum_file();

    file.entry[0].at = zeros, file.entry[1].at = big, file.entry[2].at = w_1, file.entry[3].at = minus,
    file.entry[4].at = w_2;
    tracefile_add_matrix(&file, "state/0002/w/momentum_buffer", left, 2, 2);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[5].at = near;
    assert_outcome(&file, PD_REPLAY_OK, "");
    tracefile_meta(&file, "noise_state", "0");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file.n_meta--;
    file.entry[5].at = far;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* The recorded momentum of the parameter `other` is off, and the replay fails. Then "w" gets gradients whose
 * momentum is sensitive to rounding, and the replay passes: the largest noise of a slot counts for all parameters.
 * `other` sorts before or behind "w". */
static void shares_noise(char other)
{
    char name[] = "state/0002/ /momentum_buffer";
    static const float zeros[4] = { 0 }, big[4] = { 16777215, 4, 0, 8 }, minus[4] = { -8388607, 5, 1, 0 };
    static const float w_1[4] = { -8388607.5f, -2, 0, -4 }, w_2[4] = { -8388607.75f, -5.5f, -.5f, -6 };
    static const float left[4] = { .5f, 7, 1, 4 }, near[4] = { 9.125f, 7, 1, 4 };
    tracefile file = momentum_file();

    *strchr(name, ' ') = other;
    for (int i = 0; i < 5; i++)
        file.entry[5 + i] = file.entry[i], file.n++, *strchr(file.entry[5 + i].name, 'w') = other;
    tracefile_add_matrix(&file, name, near, 2, 2);
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file.entry[0].at = zeros, file.entry[1].at = big, file.entry[2].at = w_1, file.entry[3].at = minus,
    file.entry[4].at = w_2;
    tracefile_add_matrix(&file, "state/0002/w/momentum_buffer", left, 2, 2);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(noise_is_the_largest_of_the_slot)
{
    shares_noise('v');
    shares_noise('x');
}

TEST(shaking_turns_last_bits_of_numbers_alone)
{
    float x[5] = { 1, -2, 0, INFINITY, NAN };

    pd_replay_shake(x, 5, 0);
    assert_true(x[0] == 1 + 0x1p-23f && x[1] == -2 - 0x1p-22f && x[2] == 0 && isinf(x[3]) && isnan(x[4]));
}

TEST(each_way_of_shaking_turns_another_half)
{
    enum { N = 1000 };
    int turned[2] = { 0 }, apart = 0;

    for (int i = 0; i < N; i++) {
        float x[2][N];
        for (int k = 0; k < N; k++) x[0][k] = x[1][k] = 1;
        pd_replay_shake(x[0], N, 7);
        pd_replay_shake(x[1], N, 8);
        turned[0] += x[0][i] != 1;
        turned[1] += x[1][i] != 1;
        apart += x[0][i] != x[1][i];
    }
    assert_true(turned[0] > 400 && turned[0] < 600 && turned[1] > 400 && turned[1] < 600 && apart > 400 && apart < 600);
}

/* Makes a trace of one step of Meta's Shampoo with lr 0. The gradient has rank 1, so its root consists mostly of the
 * ridge. */
static tracefile shampoo_file(const char *config)
{
    static const float w[3] = { 1, 2, 3 }, g[3] = { 1, 2, -2 };
    tracefile file = tracefile_of("meta_shampoo", "by_hand", "1", config);

    tracefile_meta(&file, "noise_bc32", "0");
    tracefile_add(&file, "param/0000/w", w, 3);
    tracefile_add(&file, "grad/0001/w", g, 3);
    tracefile_add(&file, "param/0001/w", w, 3);
    return file;
}

static void add_square(tracefile *file, const char *name, const float *values)
{
    tracefile_add(file, name, values, 9);
    file->entry[file->n - 1].shape = (pd_shape){ .rank = 2, .dim = { 3, 3 } };
}

/* Recorded state: the factor L = g g' and the filtered gradient F = 0.5 g. */
TEST(slots_of_blocks_are_found_by_block_and_number)
{
    static const float L[9] = { 1, 2, -2, 2, 4, -4, -2, -4, 4 }, F[3] = { .5f, 1, -1 }, off[3] = { .5f, 1, -1.001f };
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");

    add_square(&file, "state/0001/w/block_0.factor_matrices.0", L);
    tracefile_add(&file, "state/0001/w/block_0.filtered_grad", F, 3);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[file.n - 1].at = off;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file.entry[file.n - 1].at = F;
    strcpy(file.entry[file.n - 1].name, "state/0001/w/block_1.filtered_grad");
    assert_outcome(&file, PD_REPLAY_FAILED, "block_1.filtered_grad");
}

/* Adds a recorded root of L = g g' = 9 q q', where q has length 1. Along q the root is (9 + epsilon)^-1/2. Across q
 * it is epsilon^-1/2, with a relative error of `off`. */
static void add_root(tracefile *file, float *root, double epsilon, double off)
{
    static const double q[3] = { 1 / 3., 2 / 3., -2 / 3. };
    const double along = 1 / sqrt(9 + epsilon), wide = (1 + off) / sqrt(epsilon);

    for (int i = 0; i < 9; i++)
        root[i] = (float)(along * q[i / 3] * q[i % 3] + wide * ((i / 3 == i % 3) - q[i / 3] * q[i % 3]));
    add_square(file, "state/0001/w/block_0.inv_factor_matrices.0", root);
}

/* The factor has eigenvalues 9.09 and 0.09, so its condition number is 101. Rounding it by 10 units of 2^-24 changes
 * the small eigenvalue by up to 101 * 6e-7 = 6e-5 of itself, and its inverse square root by half of that, 3e-5. */
TEST(a_root_may_differ_by_what_rounding_its_factor_does_to_it)
{
    static const double off[] = { 0, 2e-5, -2e-5, 1.2e-4, -1.2e-4 };

    for (int i = 0; i < 5; i++) {
        float root[9];
        tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1], \"epsilon\": 0.09}");
        add_root(&file, root, 0.09, off[i]);
        assert_outcome(&file, i < 3 ? PD_REPLAY_OK : PD_REPLAY_FAILED, "");
    }
}

TEST(the_bound_of_a_root_does_not_hide_another_epsilon)
{
    float root[9];
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1], \"epsilon\": 0.0901}");
    pd_replay_result r;

    add_root(&file, root, 0.09, 0);
    r = replayed(&file);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_string_equal(r.state.worst, "state/0001/w/block_0.inv_factor_matrices.0");
    pd_replay_result_free(&r);
}

/* The rounding error of the factor, 5e-7, is far larger than this epsilon, so the root may differ. But rounding
 * cannot make it infinite. */
TEST(a_root_that_is_all_rounding_is_not_compared_but_must_be_finite)
{
    float root[9];
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1], \"epsilon\": 1e-12}");

    add_root(&file, root, 1e-12, 0.5);
    assert_outcome(&file, PD_REPLAY_OK, "");
    root[4] = INFINITY;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* The last element is off by 1.5e-4, which is 1e-4 of the whole filtered gradient. Its tolerance is the noise that
 * was recorded for the distance of the weights from their initial values. */
TEST(a_filtered_gradient_is_as_noisy_as_the_way_from_the_start)
{
    static const float off[3] = { .5f, 1, -1.00015f };
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");

    tracefile_add(&file, "state/0001/w/block_0.filtered_grad", off, 3);
    tracefile_meta(&file, "noise_bc32_displacement", "1e-5");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    tracefile_meta(&file, "noise_bc32_displacement", "1e-4");
    assert_outcome(&file, PD_REPLAY_OK, "");
}

/* Factors are sums of recorded gradients, so noise in the displacement of the weights is no excuse for an error in
 * them. */
TEST(factors_are_judged_by_the_noise_of_the_weights)
{
    static const float off[9] = { 1, 2, -2, 2, 4.001f, -4, -2, -4, 4 };
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");

    add_square(&file, "state/0001/w/block_0.factor_matrices.0", off);
    tracefile_meta(&file, "noise_bc32_displacement", "1e-2");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(roots_of_a_parameter_without_a_gradient_are_passed_over)
{
    static const float w[3] = { 1, 2, 3 }, root[9] = { 100, 0, 0, 0, 100, 0, 0, 0, 100 };
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");

    tracefile_add(&file, "param/0000/idle", w, 3);
    tracefile_add(&file, "param/0001/idle", w, 3);
    add_square(&file, "state/0001/idle/block_0.inv_factor_matrices.0", root);
    assert_outcome(&file, PD_REPLAY_OK, "");
    strcpy(file.entry[file.n - 1].name, "state/0001/w/block_0.inv_factor_matrices.0");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    strcpy(file.entry[file.n - 1].name, "state/0001/idle/block_0.factor_matrices.0");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_recorded_count_is_that_of_the_parameter)
{
    static const int64_t one = 1, two = 2;
    tracefile file = momentum_file();

    tracefile_add_typed(&file, "state/0002/w/step", PD_ST_I64, &two, 0);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[file.n - 1].at = &one;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* The step count of the group is recorded also for a parameter without a gradient. */
TEST(a_recorded_count_is_that_of_the_group)
{
    static const int64_t one = 1, two = 2;
    tracefile file = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");
    static const float w[3] = { 1, 2, 3 };

    tracefile_add(&file, "param/0000/idle", w, 3);
    tracefile_add(&file, "param/0001/idle", w, 3);
    tracefile_add_typed(&file, "state/0001/idle/step", PD_ST_I64, &one, 0);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[file.n - 1].at = &two;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* One element of the recorded factor is off by 1/128 of itself, one unit in the last place of a bfloat16. That is
 * accepted if the factor is stored in bfloat16, and not if it is stored in float32. */
TEST(what_is_stored_in_16_bits_may_be_off_by_a_unit)
{
    static const float near[9] = { 1, 2, -2, 2, 4.03125f, -4, -2, -4, 4 },
                       far[9] = { 1, 2, -2, 2, 4.0625f, -4, -2, -4, 4 };
    tracefile coarse = shampoo_file(
                  "{\"lr\": 0, \"betas\": [0.5, 1], \"precision_config\": {\"factor_matrix_dtype\": \"bfloat16\"}}"),
              fine = shampoo_file("{\"lr\": 0, \"betas\": [0.5, 1]}");

    add_square(&coarse, "state/0001/w/block_0.factor_matrices.0", near);
    add_square(&fine, "state/0001/w/block_0.factor_matrices.0", near);
    assert_outcome(&coarse, PD_REPLAY_OK, "");
    assert_outcome(&fine, PD_REPLAY_FAILED, "");
    coarse.entry[coarse.n - 1].at = far;
    assert_outcome(&coarse, PD_REPLAY_FAILED, "");
}

/* Our momentum after step 1 is 0.5, the recorded one 0.501: equal in bfloat16, but not in float32. */
TEST(adafactors_momentum_in_bfloat16_may_be_off_by_a_unit)
{
    static const float zero[1] = { 0 }, gradient[1] = { -1 }, moved[1] = { -.5f }, off[1] = { .501f };
    static const char *const config[] = {
        "{\"learning_rate\": -1, \"beta1\": 0.5, \"multiply_by_parameter_scale\": false, \"dtype_momentum\": "
        "\"bfloat16\"}",
        "{\"learning_rate\": -1, \"beta1\": 0.5, \"multiply_by_parameter_scale\": false}"
    };

    for (int i = 0; i < 2; i++) {
        tracefile file = shampoo_file(config[i]);
        file.n = 0;
        tracefile_meta(&file, "system", "t5x_adafactor");
        tracefile_meta(&file, "steps", "1");
        tracefile_add_all(&file,
                          (const tracefile_values[]){ { "param/0000/w", zero, 1 },
                                                      { "grad/0001/w", gradient, 1 },
                                                      { "param/0001/w", moved, 1 },
                                                      { "state/0001/w/m", off, 1 } },
                          4);
        assert_outcome(&file, i == 0 ? PD_REPLAY_OK : PD_REPLAY_FAILED, "");
    }
}

TEST(state_that_is_not_finite_on_both_sides_coincides)
{
    static const float huge[4] = { INFINITY, 4, 0, 8 }, w_1[4] = { -INFINITY, 0, 3, 0 }, kind[4] = { NAN, 4, 0, 8 },
                       one[4] = { 1, 4, 0, 8 };
    tracefile file = momentum_file();

    tracefile_meta(&file, "steps", "1");
    file.n = 3;
    file.entry[1].at = huge, file.entry[2].at = w_1;
    tracefile_add_matrix(&file, "state/0001/w/momentum_buffer", huge, 2, 2);
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[3].at = kind;
    assert_outcome(&file, PD_REPLAY_OK, "");
    file.entry[3].at = one;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(without_recorded_state_weights_are_judged_alone)
{
    tracefile file = momentum_file();

    assert_outcome(&file, PD_REPLAY_OK, "");
}

/* The recorded momentum b2, quantized: its codes, buckets and diagonal are entries 5 to 7 of the file. */
static const int16_t codes[4] = { 0, 1, 2, 0 };
static const float bucket[2] = { .5f, 7 }, diagonal[2] = { 9, 4 };

static tracefile quantized_file(void)
{
    tracefile file = momentum_file();

    tracefile_add_typed(&file, "state/0002/w/momentum_buffer/quantized", PD_ST_I16, codes, 4);
    file.entry[5].shape = (pd_shape){ .rank = 2, .dim = { 2, 2 } };
    tracefile_add(&file, "state/0002/w/momentum_buffer/bucket_size", bucket, 2);
    tracefile_add(&file, "state/0002/w/momentum_buffer/diagonal", diagonal, 2);
    return file;
}

TEST(quantized_state_is_compared_as_what_it_stands_for)
{
    static const int16_t other_codes[4] = { 0, 1, 3, 0 };
    static const float other_diagonal[2] = { 9, 5 }, other_bucket[2] = { .75f, 7 };
    tracefile file = quantized_file();
    pd_replay_result r = replayed(&file);

    if (r.outcome != PD_REPLAY_OK) fail_msg("error %g: %s", r.state.error, r.why.text);
    assert_int_equal(r.state.compared, 1);
    pd_replay_result_free(&r);
    file.entry[5].at = other_codes;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file = quantized_file(), file.entry[6].at = other_bucket;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file = quantized_file(), file.entry[7].at = other_diagonal;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_quantized_vector_has_one_bucket)
{
    static const float v0[2] = { 1, 1 }, v1[2] = { 0, -1 }, gv[2] = { 2, 4 }, one[1] = { 2 };
    static const int8_t vector_codes[2] = { 1, 2 };
    tracefile file = momentum_file();

    memset(file.entry, 0, sizeof file.entry), file.n = 0;
    tracefile_meta(&file, "steps", "1");
    tracefile_add(&file, "param/0000/v", v0, 2);
    tracefile_add(&file, "grad/0001/v", gv, 2);
    tracefile_add(&file, "param/0001/v", v1, 2);
    tracefile_add_typed(&file, "state/0001/v/momentum_buffer/quantized", PD_ST_I8, vector_codes, 2);
    tracefile_add(&file, "state/0001/v/momentum_buffer/bucket_size", one, 0);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(quantized_state_without_its_parts_fails)
{
    tracefile file = quantized_file();

    strcpy(file.entry[6].name, "elsewhere");
    assert_outcome(&file, PD_REPLAY_FAILED, "momentum_buffer/bucket_size: missing");
    file = quantized_file(), file.entry[6].shape.dim[0] = 1, file.entry[6].bytes = 4;
    assert_outcome(&file, PD_REPLAY_FAILED, "momentum_buffer/bucket_size: expected 2 elements");
    file = quantized_file(), file.entry[5].shape.rank = 0, file.entry[5].bytes = 2;
    assert_outcome(&file, PD_REPLAY_FAILED, "expected codes of a vector or matrix");
    file = quantized_file(), file.entry[5].shape = (pd_shape){ .rank = 2, .dim = { 2, 1 } }, file.entry[5].bytes = 4;
    file.entry[6].shape.dim[0] = 1, file.entry[6].bytes = 4;
    assert_outcome(&file, PD_REPLAY_FAILED, "not square");
}

TEST(state_without_a_slot_must_be_zero)
{
    static const float zeros[4] = { 0 };
    tracefile file = momentum_file();
    pd_replay_result r;

    tracefile_add_matrix(&file, "state/0001/w/statistics/3", zeros, 2, 2);
    r = replayed(&file);
    assert_true(r.outcome == PD_REPLAY_OK && r.state.compared == 0);
    pd_replay_result_free(&r);
    file.entry[5].at = b1;
    assert_outcome(&file, PD_REPLAY_FAILED, "state/0001/w/statistics/3: the optimizer has no slot statistics.3");
    strcpy(file.entry[5].name, "state/0001/w/momentum_buffer/3");
    assert_outcome(&file, PD_REPLAY_FAILED, "no slot momentum_buffer.3");
}

TEST(state_of_another_size_fails)
{
    tracefile file = momentum_file();

    tracefile_add(&file, "state/0001/w/momentum_buffer", b1, 3);
    assert_outcome(&file, PD_REPLAY_FAILED, "state/0001/w/momentum_buffer");
}

TEST(state_of_no_parameter_or_step_fails)
{
    static const char *const names[] = { "state/0001/v/momentum",
                                         "state/0001/w",
                                         "state/momentum",
                                         "state/1/w/momentum",
                                         "state/0003/w/momentum_buffer",
                                         "state/0000/w/momentum_buffer" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tracefile file = momentum_file();
        tracefile_add_matrix(&file, names[i], b1, 2, 2);
        assert_outcome(&file, PD_REPLAY_FAILED, names[i]);
    }
}

/* Makes the trace of momentum_file with another parameter, which has a gradient in step 1 only. */
static tracefile momentum_file_and(const char *param)
{
    static const struct {
        const char *where;
        const float *values;
    } all[] = {
        { "param/0000", w0 },
        { "grad/0001", g1 },
        { "param/0001", w1 },
        { "param/0002", w1 },
    };
    tracefile file = momentum_file();
    char name[80];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", all[i].where, param);
        tracefile_add_matrix(&file, name, all[i].values, 2, 2);
    }
    return file;
}

TEST(state_belongs_to_the_longest_name)
{
    tracefile file = momentum_file_and("w/momentum");

    tracefile_add_matrix(&file, "state/0001/w/momentum/momentum_buffer", b1, 2, 2);
    tracefile_add_matrix(&file, "state/0001/w/momentum_buffer", b1, 2, 2);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(a_number_is_not_the_name_of_a_slot)
{
    tracefile file = momentum_file_and("w/momentum_buffer");

    tracefile_add_matrix(&file, "state/0001/w/momentum_buffer/0", b1, 2, 2);
    assert_outcome(&file, PD_REPLAY_FAILED,
                   "state/0001/w/momentum_buffer/0: the optimizer has no slot momentum_buffer.0");
}

TEST(without_memory_it_fails_and_leaks_nothing)
{
    tracefile file = quantized_file();

    assert_fails_without_memory(&file);
}
