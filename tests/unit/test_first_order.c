/* Tests properties of the element-wise optimizers that hold for any input, and the tables of their options.
 * test_first_order_twins.c tests their formulas. */
#include "convert.h"
#include "optimizer_ops.h"
#include "test.h"
#include "vectors.h"

/* LARGE: enough elements for three units of work (the last unit is not full), and no multiple of a SIMD vector */
enum { N = 301, LARGE = 150001, STEPS = 9 };

/* `maximize` with negated gradients gives the same weights, bit for bit. */
TEST(maximize_equals_minimize_with_negated_gradients)
{
    static const int64_t n = N;
    float w[2][N], gradient[N], opposite[N];

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers up, down;
        pd_model *models[2];
        if (!vectors_has(vectors_rows[k], "maximize")) continue;
        up = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.05", "maximize", "yes"));
        down = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.05"));
        models[0] = vectors_model(&up, &n, 1, 2), models[1] = vectors_model(&down, &n, 1, 2);
        for (int i = 0; i < 2; i++) vectors_fill(w[i], N, 0);
        for (int s = 1; s <= 4; s++) {
            vectors_fill(gradient, N, s);
            for (int i = 0; i < N; i++) opposite[i] = -gradient[i];
            vectors_step(models[0], gradient, w[0], w[0], NULL);
            vectors_step(models[1], opposite, w[1], w[1], NULL);
        }
        assert_memory_equal(w[0], w[1], sizeof w[0]);
        for (int i = 0; i < 2; i++) pd_model_free(models[i]);
    }
}

/* Compares one parameter, whose step is cut into three units of work, with three smaller parameters of the same
 * elements, cut at other places. Lamb is left out, since it uses the norm of a whole parameter. */
TEST(cutting_into_units_changes_no_bit)
{
    static const int64_t whole = LARGE, parts[3] = { 70001, 79989, 11 };
    float *w = malloc(LARGE * sizeof *w), *v = malloc(LARGE * sizeof *v), *gradient = malloc(LARGE * sizeof *gradient);

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.05"));
        pd_model *one, *three;
        if (strcmp(vectors_rows[k], "lamb") == 0) continue;
        one = vectors_model(&hypers, &whole, 1, 2), three = vectors_model(&hypers, parts, 3, 2);
        vectors_fill(w, LARGE, 0);
        vectors_fill(v, LARGE, 0);
        for (int s = 1; s <= 3; s++) {
            pd_step_io io[3] = { 0 };
            int64_t first = 0;
            vectors_fill(gradient, LARGE, s);
            for (int i = 0; i < 3; first += parts[i++])
                io[i] = (pd_step_io){ .gradient = gradient + first, .before = v + first, .after = v + first };
            vectors_step(one, gradient, w, w, NULL);
            assert_int_equal(pd_model_step(three, io, NULL), PD_OK);
        }
        assert_memory_equal(w, v, LARGE * sizeof *w);
        pd_model_free(one);
        pd_model_free(three);
    }
    free(w);
    free(v);
    free(gradient);
}

TEST(threads_change_no_bit)
{
    static const int64_t n = LARGE;
    float *w = malloc(LARGE * sizeof *w), *v = malloc(LARGE * sizeof *v), *gradient = malloc(LARGE * sizeof *gradient);

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.05"));
        pd_model *one = vectors_model(&hypers, &n, 1, 1), *three = vectors_model(&hypers, &n, 1, 3);
        vectors_fill(w, LARGE, 0);
        vectors_fill(v, LARGE, 0);
        for (int s = 1; s <= 2; s++) {
            vectors_fill(gradient, LARGE, s);
            vectors_step(one, gradient, w, w, NULL);
            vectors_step(three, gradient, v, v, NULL);
        }
        assert_memory_equal(w, v, LARGE * sizeof *w);
        pd_model_free(one);
        pd_model_free(three);
    }
    free(w);
    free(v);
    free(gradient);
}

TEST(a_step_in_place_is_the_same_as_into_another_buffer)
{
    static const int64_t n = N;
    float w[N], other[2][N], gradient[N];

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.05"));
        pd_model *in_place = vectors_model(&hypers, &n, 1, 2), *apart = vectors_model(&hypers, &n, 1, 2);
        vectors_fill(w, N, 0);
        vectors_fill(other[0], N, 0);
        for (int s = 0; s < 4; s++) {
            vectors_fill(gradient, N, s + 1);
            vectors_step(in_place, gradient, w, w, NULL);
            vectors_step(apart, gradient, other[s & 1], other[~s & 1], NULL);
        }
        assert_memory_equal(w, other[0], sizeof w);
        pd_model_free(in_place);
        pd_model_free(apart);
    }
}

TEST(without_gradient_and_decay_nothing_moves)
{
    static const int64_t n = N;
    static const float zero[N];
    float w[N], start[N];

    vectors_fill(start, N, 0);
    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], vectors_has(vectors_rows[k], "lambd") ? OPTIONS("lambd", "0")
                                                           : vectors_has(vectors_rows[k], "weight_decay")
                                                               ? OPTIONS("weight_decay", "0")
                                                               : OPTIONS("lr", "1"));
        pd_model *model = vectors_model(&hypers, &n, 1, 2);
        memcpy(w, start, sizeof w);
        for (int s = 0; s < 3; s++) vectors_step(model, zero, w, w, NULL);
        assert_memory_equal(w, start, sizeof w);
        pd_model_free(model);
    }
}

TEST(a_rate_of_zero_moves_the_state_alone)
{
    static const int64_t n = N;
    float w[N], start[N], gradient[N];

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.1")),
                  none = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0"));
        pd_model *model;
        if (strcmp(vectors_rows[k], "rprop") == 0 || strcmp(vectors_rows[k], "asgd") == 0 ||
            pd_optim_find(vectors_rows[k])->readout != NULL)
            continue; /* rprop and asgd move the weights by a rate that an earlier step has set, others to an average */
        model = vectors_model(&hypers, &n, 1, 2);
        vectors_fill(w, N, 0);
        vectors_fill(gradient, N, 1);
        vectors_step(model, gradient, w, w, NULL);
        memcpy(start, w, sizeof w);
        vectors_step(model, gradient, w, w, &none);
        assert_memory_equal(w, start, sizeof w);
        vectors_step(model, gradient, w, w, NULL);
        for (int i = 0; i < N; i++) assert_true(w[i] != start[i]);
        pd_model_free(model);
    }
}

/* As in torch, a value that is not finite changes its own element alone, and the sign of NaN is 0. */
TEST(a_nan_stays_with_its_element)
{
    static const int64_t n = N;
    float w[N], gradient[N];

    for (int k = 0; k < VECTORS_ROWS; k++) {
        pd_hypers hypers = vectors_hypers(vectors_rows[k], OPTIONS("lr", "0.1"));
        pd_model *model = vectors_model(&hypers, &n, 1, 2);
        bool by_sign = strcmp(vectors_rows[k], "rprop") == 0 || strcmp(vectors_rows[k], "lion") == 0;
        vectors_fill(w, N, 0);
        for (int s = 1; s <= 3; s++) {
            vectors_fill(gradient, N, s);
            if (s == 2) gradient[5] = NAN;
            vectors_step(model, gradient, w, w, NULL);
        }
        for (int i = 0; i < N; i++) assert_true(isnan(w[i]) == (i == 5 && !by_sign));
        pd_model_free(model);
    }
}

TEST(the_larger_of_a_nan_and_a_number_is_nan)
{
    static const int64_t n = N;
    static const struct {
        const char *row, *option, *slot;
    } cases[] = { { "adamax", "maximize", "exp_inf" }, { "adam", "amsgrad", "max_exp_avg_sq" } };
    float w[N], gradient[N], slot[N];

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        pd_hypers hypers = vectors_hypers(cases[k].row, OPTIONS(cases[k].option, "yes"));
        pd_model *model = vectors_model(&hypers, &n, 1, 2);
        vectors_fill(w, N, 0);
        for (int s = 1; s <= 3; s++) {
            vectors_fill(gradient, N, s);
            if (s == 2) gradient[5] = NAN;
            vectors_step(model, gradient, w, w, NULL);
        }
        vectors_slot(model, cases[k].slot, slot, N);
        for (int i = 0; i < N; i++) assert_true(isnan(slot[i]) == (i == 5));
        pd_model_free(model);
    }
}

TEST(without_decay_weights_do_not_enter_the_gradient)
{
    static const int64_t n = N;
    pd_hypers hypers = vectors_hypers("adam", OPTIONS("weight_decay", "0"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    float w[N], gradient[N], average[N];

    vectors_fill(w, N, 0);
    vectors_fill(gradient, N, 1);
    w[5] = INFINITY;
    vectors_step(model, gradient, w, w, NULL);
    vectors_slot(model, "exp_avg", average, N);
    for (int i = 0; i < N; i++) assert_true(isfinite(average[i]));
    assert_true(w[5] == INFINITY);
    pd_model_free(model);
}

TEST(amsgrads_divisor_never_falls)
{
    static const int64_t n = N;
    pd_hypers hypers = vectors_hypers("adam", OPTIONS("amsgrad", "yes", "betas", "0.9,0.5"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    float w[N], gradient[N], square[N], largest[N], last[N] = { 0 };

    vectors_fill(w, N, 0);
    for (int s = 1; s <= STEPS; s++) {
        vectors_fill(gradient, N, s);
        vectors_step(model, gradient, w, w, NULL);
        vectors_slot(model, "exp_avg_sq", square, N);
        vectors_slot(model, "max_exp_avg_sq", largest, N);
        for (int i = 0; i < N; i++) assert_true(largest[i] == fmaxf(last[i], square[i]));
        memcpy(last, largest, sizeof last);
    }
    pd_model_free(model);
}

TEST(adamw_shrinks_weights_by_lr_and_decay)
{
    static const int64_t n = N;
    static const float zero[N];
    pd_hypers hypers = vectors_hypers("adamw", OPTIONS("lr", "0.5", "weight_decay", "0.5"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    float w[N], start[N], average[N];

    vectors_fill(w, N, 0);
    memcpy(start, w, sizeof w);
    vectors_step(model, zero, w, w, NULL);
    for (int i = 0; i < N; i++) assert_true(w[i] == 0.75f * start[i]);
    vectors_slot(model, "exp_avg", average, N);
    assert_memory_equal(average, zero, sizeof zero);
    pd_model_free(model);
}

/* Lamb's step has the length lr |w| (|w|: the norm of the weights), whatever the size of the gradient. */
TEST(lambs_step_is_in_proportion_to_the_weights)
{
    static const int64_t n = LARGE;
    static const float sizes[2] = { 1e-6f, 1e3f };
    pd_hypers hypers = vectors_hypers("lamb", OPTIONS("lr", "0.01"));
    float *w = malloc(LARGE * sizeof *w), *after = malloc(LARGE * sizeof *after),
          *gradient = malloc(LARGE * sizeof *gradient);

    for (int k = 0; k < 2; k++) {
        pd_model *model = vectors_model(&hypers, &n, 1, 2);
        double moved = 0, norm = 0;
        vectors_fill(w, LARGE, 0);
        vectors_fill(gradient, LARGE, 1);
        for (int64_t i = 0; i < LARGE; i++) gradient[i] *= sizes[k];
        vectors_step(model, gradient, w, after, NULL);
        for (int64_t i = 0; i < LARGE; i++) {
            moved += ((double)after[i] - (double)w[i]) * ((double)after[i] - (double)w[i]);
            norm += (double)w[i] * (double)w[i];
        }
        assert_true(fabs(sqrt(moved / norm) / 0.01 - 1) < 1e-4);
        pd_model_free(model);
    }
    free(w);
    free(after);
    free(gradient);
}

TEST(asgd_keeps_the_mean_of_its_weights)
{
    static const int64_t n = N;
    pd_hypers hypers = vectors_hypers("asgd", OPTIONS("t0", "0"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    float w[N], gradient[N], mean[N];
    double sum[N] = { 0 };

    vectors_fill(w, N, 0);
    for (int s = 1; s <= STEPS; s++) {
        vectors_fill(gradient, N, s);
        vectors_step(model, gradient, w, w, NULL);
        for (int i = 0; i < N && s > 1; i++)
            sum[i] += (double)w[i]; /* the averaging factor mu is 1 in the first two steps, so the weights of step 1 do
                                     * not count in the mean */
    }
    vectors_slot(model, "ax", mean, N);
    for (int i = 0; i < N; i++) assert_true(fabs((double)mean[i] - sum[i] / (STEPS - 1)) < 1e-6);
    pd_model_free(model);
}

TEST(rprop_waits_where_the_sign_has_changed)
{
    static const int64_t n = 2;
    static const float up[2] = { 3, 3 }, turned[2] = { 5, -5 };
    pd_hypers hypers = vectors_hypers("rprop", OPTIONS("lr", "0.5", "etas", "0.5,1.5")),
              later = vectors_hypers("rprop", OPTIONS("lr", "7", "etas", "0.5,1.5"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    float w[2] = { 0, 0 }, size[2];

    vectors_step(model, up, w, w, NULL);
    assert_true(w[0] == -0.5f && w[1] == -0.5f);
    vectors_step(model, turned, w, w, &later); /* rprop takes its step sizes from the rate of the first step, so a
                                                * later change of the rate has no effect */
    assert_true(w[0] == -1.25f && w[1] == -0.5f);
    vectors_slot(model, "step_size", size, 2);
    assert_true(size[0] == 0.75f && size[1] == 0.25f);
    vectors_step(model, turned, w, w, NULL);
    assert_true(w[1] == -0.25f);
    pd_model_free(model);
}

TEST(nadam_can_count_mu_twice_as_old_releases_do)
{
    static const int64_t n = 1;
    pd_hypers hypers = vectors_hypers("nadam", OPTIONS("mu_counted_twice", "yes", "eps", "0", "lr", "1"));
    pd_model *model = vectors_model(&hypers, &n, 1, 2);
    const double mu = 0.9 * (1 - pow(0.96, 0.004) / 2), next = 0.9 * (1 - pow(0.96, 0.008) / 2);
    const float one = 1;
    float w = 0, product;

    vectors_step(model, &one, &w, &w, NULL);
    assert_true(fabs((double)w + (1 - mu) / (1 - mu) + next * 0.1 / (1 - mu * mu * next)) < 1e-6);
    vectors_slot(model, "mu_product", &product, 1);
    assert_true(fabs((double)product - mu) < 1e-7);
    pd_model_free(model);
}

/* What upstream's programs take where nothing is said. */
static const struct {
    const char *row, *name;
    double preset;
} upstream_defaults[] = {
    { "adam", "lr", 1e-3 },
    { "adam", "betas[0]", 0.9 },
    { "adam", "betas[1]", 0.999 },
    { "adam", "eps", 1e-8 },
    { "adam", "weight_decay", 0 },
    { "adam", "decoupled_weight_decay", 0 },
    { "adamw", "lr", 1e-3 },
    { "adamw", "weight_decay", 1e-2 },
    { "adamw", "decoupled_weight_decay", 1 },
    { "adagrad", "lr", 1e-2 },
    { "adagrad", "eps", 1e-10 },
    { "adagrad", "lr_decay", 0 },
    { "rmsprop", "lr", 1e-2 },
    { "rmsprop", "alpha", 0.99 },
    { "rmsprop", "eps", 1e-8 },
    { "rmsprop", "momentum", 0 },
    { "nadam", "lr", 2e-3 },
    { "nadam", "momentum_decay", 4e-3 },
    { "nadam", "mu_counted_twice", 0 },
    { "radam", "lr", 1e-3 },
    { "adamax", "lr", 2e-3 },
    { "adamax", "eps", 1e-8 },
    { "adadelta", "lr", 1 },
    { "adadelta", "rho", 0.9 },
    { "adadelta", "eps", 1e-6 },
    { "rprop", "lr", 1e-2 },
    { "rprop", "etas[0]", 0.5 },
    { "rprop", "etas[1]", 1.2 },
    { "rprop", "step_sizes[0]", 1e-6 },
    { "rprop", "step_sizes[1]", 50 },
    { "asgd", "lr", 1e-2 },
    { "asgd", "lambd", 1e-4 },
    { "asgd", "alpha", 0.75 },
    { "asgd", "t0", 1e6 },
    { "lamb", "lr", 1e-3 },
    { "lamb", "eps", 1e-6 },
    { "lamb", "weight_decay", 1e-2 },
    { "lamb", "bias_correction", 1 },
    { "lamb", "grad_averaging", 1 },
    { "lamb", "trust_clip", 0 },
    { "lion", "lr", 1e-4 },
    { "lion", "betas[0]", 0.9 },
    { "lion", "betas[1]", 0.99 },
    { "lion", "weight_decay", 0 },
    { "delayed_nesterov", "lr", 0.07 },
    { "delayed_nesterov", "momentum", 0.9 },
    { "delayed_nesterov", "period", 1 },
    { "delayed_nesterov", "spread", 0 },
    { "ademamix", "lr", 1e-3 },
    { "ademamix", "betas[0]", 0.9 },
    { "ademamix", "betas[1]", 0.999 },
    { "ademamix", "betas[2]", 0.9999 },
    { "ademamix", "alpha", 2 },
    { "ademamix", "beta3_warmup", 0 },
    { "ademamix", "alpha_warmup", 0 },
    { "ademamix", "eps", 1e-8 },
    { "ademamix", "weight_decay", 0 },
    { "schedule_free", "lr", 2.5e-3 },
    { "schedule_free", "betas[0]", 0.9 },
    { "schedule_free", "betas[1]", 0.999 },
    { "schedule_free", "eps", 1e-8 },
    { "schedule_free", "weight_decay", 0 },
    { "schedule_free", "warmup_steps", 0 },
    { "schedule_free", "r", 0 },
    { "schedule_free", "weight_lr_power", 2 },
    { "schedule_free", "inner_momentum", 0 },
    { "schedule_free_sgd", "lr", 1 },
    { "schedule_free_sgd", "momentum", 0.9 },
    { "schedule_free_sgd", "weight_lr_power", 2 },
    { "gpa", "lr", 1 },
    { "gpa", "beta1", 0.9 },
    { "gpa", "beta2", 0.999 },
    { "gpa", "train_interp_coeff", 0.7 },
    { "gpa", "eval_interp_coeff", 0.9967 },
    { "gpa", "iterate_averaging_type", 0 },
    { "gpa", "use_wd_on_y", 0 },
};

TEST(defaults_equal_upstreams)
{
    for (size_t i = 0; i < sizeof upstream_defaults / sizeof *upstream_defaults; i++) {
        const char *row = upstream_defaults[i].row, *name = upstream_defaults[i].name;
        pd_hypers h = vectors_hypers(row, OPTIONS(NULL));
        if (!vectors_has(row, name)) fail_msg("%s has no %s", row, name);
        if (vectors_value(&h, name) != upstream_defaults[i].preset)
            fail_msg("%s: %s is %g, not %g", row, name, vectors_value(&h, name), upstream_defaults[i].preset);
    }
}

TEST(state_is_what_the_options_need)
{
    static const struct {
        const char *row, *option;
        const char *slots[3];
        int64_t floats;
    } expected[] = {
        { "adam", NULL, { "exp_avg", "exp_avg_sq" }, 2 * N },
        { "adamw", "amsgrad", { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }, 3 * N },
        { "adagrad", NULL, { "sum" }, N },
        { "rmsprop", NULL, { "square_avg" }, N },
        { "rmsprop", "centered", { "square_avg", "grad_avg" }, 2 * N },
        { "rmsprop", "momentum", { "square_avg", "momentum_buffer" }, 2 * N },
        { "nadam", NULL, { "exp_avg", "exp_avg_sq" }, 2 * N + 1 },
        { "radam", NULL, { "exp_avg", "exp_avg_sq" }, 2 * N },
        { "adamax", NULL, { "exp_avg", "exp_inf" }, 2 * N },
        { "adadelta", NULL, { "square_avg", "acc_delta" }, 2 * N },
        { "rprop", NULL, { "prev", "step_size" }, 2 * N },
        { "asgd", NULL, { "ax" }, N + 2 },
        { "lamb", NULL, { "exp_avg", "exp_avg_sq" }, 2 * N },
        { "lion", NULL, { "exp_avg" }, N },
        { "delayed_nesterov", NULL, { "grad_sum", "momentum_buffer" }, 2 * N },
        { "ademamix", NULL, { "exp_avg_fast", "exp_avg_slow", "exp_avg_sq" }, 3 * N },
        { "schedule_free", NULL, { "z_minus_y", "exp_avg_sq" }, 2 * N + 6 },
        { "schedule_free_sgd", NULL, { "z_minus_y" }, N + 6 },
        { "gpa", NULL, { "z_minus_y", "exp_avg_sq", "exp_avg" }, 3 * N },
    };
    static const int64_t n = N;
    float at[N];

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pd_hypers h = vectors_hypers(expected[i].row,
                                     expected[i].option != NULL ? OPTIONS(expected[i].option, "1") : OPTIONS(NULL));
        pd_model *model = vectors_model(&h, &n, 1, 2);
        for (int k = 0; k < 3 && expected[i].slots[k] != NULL; k++) vectors_slot(model, expected[i].slots[k], at, N);
        assert_int_equal(pd_model_state_bytes(model), expected[i].floats * 4);
        pd_model_free(model);
    }
}

/* A slot in bfloat16 takes half the memory, and the weights stay near those of a slot in float32. */
TEST(a_slot_may_be_stored_in_bfloat16)
{
    static const struct {
        const char *row, *option, *slot;
    } cases[] = { { "ademamix", "mu_dtype", "exp_avg_fast" }, { "gpa", "mu_dtype", "exp_avg" } };
    static const int64_t n = N;
    float w[2][N], gradient[N], slot[N];

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        pd_hypers h = vectors_hypers(cases[k].row, OPTIONS("lr", "0.01")),
                  half = vectors_hypers(cases[k].row, OPTIONS("lr", "0.01", cases[k].option, "bfloat16"));
        pd_model *models[2] = { vectors_model(&h, &n, 1, 2), vectors_model(&half, &n, 1, 2) };
        for (int i = 0; i < 2; i++) vectors_fill(w[i], N, 0);
        for (int s = 1; s <= STEPS; s++) {
            vectors_fill(gradient, N, s);
            for (int i = 0; i < 2; i++) vectors_step(models[i], gradient, w[i], w[i], NULL);
        }
        assert_memory_not_equal(w[0], w[1], sizeof w[0]);
        for (int i = 0; i < N; i++) assert_true(fabsf(w[0][i] - w[1][i]) < 0.01f);
        vectors_slot(models[1], cases[k].slot, slot, N);
        for (int i = 0; i < N; i++) assert_int_equal(pd_f32_bits(slot[i]) & 0xffff, 0);
        assert_int_equal(pd_model_state_bytes(models[0]) - pd_model_state_bytes(models[1]), 2 * N);
        for (int i = 0; i < 2; i++) pd_model_free(models[i]);
    }
}

TEST(values_outside_of_a_range_are_refused_by_name)
{
    static const struct {
        const char *row, *name, *bad;
    } expected[] = {
        { "adam", "lr", "-1" },
        { "adam", "betas", "1,0.9" },
        { "adam", "betas", "0.9,1" },
        { "adam", "betas[0]", "-0.1" },
        { "adam", "eps", "-1" },
        { "adamw", "weight_decay", "-1" },
        { "adagrad", "lr_decay", "-1" },
        { "adagrad", "initial_accumulator_value", "-1" },
        { "rmsprop", "alpha", "-1" },
        { "rmsprop", "momentum", "-1" },
        { "nadam", "momentum_decay", "-1" },
        { "radam", "betas", "0.9,1" },
        { "adamax", "betas", "1,0.9" },
        { "adadelta", "rho", "1.1" },
        { "adadelta", "eps", "-1" },
        { "rprop", "lr", "-1" },
        { "rprop", "etas", "1.5,1.2" },
        { "asgd", "lr", "-1" },
        { "lamb", "betas", "0.9,1" },
        { "lion", "betas", "1,0.9" },
        { "delayed_nesterov", "momentum", "-0.1" },
        { "delayed_nesterov", "period", "0" },
        { "delayed_nesterov", "period", "16777217" },
        { "delayed_nesterov", "spread", "-0.1" },
        { "delayed_nesterov", "spread", "1.1" },
        { "ademamix", "betas[2]", "1" },
        { "ademamix", "alpha", "-1" },
        { "ademamix", "beta3_warmup", "-1" },
        { "schedule_free", "betas[0]", "0" },
        { "schedule_free", "warmup_steps", "-1" },
        { "schedule_free_sgd", "momentum", "0" },
        { "schedule_free_sgd", "momentum", "1" },
        { "gpa", "train_interp_coeff", "0" },
        { "gpa", "eval_interp_coeff", "1.1" },
    };

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pd_hypers h = vectors_hypers(expected[i].row, OPTIONS(NULL));
        pd_error err;
        assert_int_equal(pd_hypers_set(&h, expected[i].name, expected[i].bad, &err), PD_OUT_OF_RANGE);
        assert_non_null(strstr(err.text, expected[i].row));
        assert_non_null(strstr(err.text, expected[i].name));
    }
}

TEST(rprop_needs_one_factor_below_one_and_one_above)
{
    static const char *const bad[] = { "0,1.2", "1,1.2", "0.5,1" };
    pd_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pd_hypers h = vectors_hypers("rprop", OPTIONS("etas", bad[i]));
        assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "0 < etas[0] < 1 < etas[1]"));
    }
}

TEST(options_that_decide_the_state_stay_as_declared)
{
    static const struct {
        const char *row, *name, *was, *is;
    } expected[] = {
        { "adam", "amsgrad", "no", "yes" },
        { "adamw", "amsgrad", "yes", "no" },
        { "adagrad", "initial_accumulator_value", "0", "1" },
        { "rmsprop", "centered", "no", "yes" },
        { "rmsprop", "momentum", "0", "0.9" },
        { "rmsprop", "momentum", "0.9", "0" },
        { "ademamix", "betas[0]", "0.9", "0" },
        { "ademamix", "betas[0]", "0", "0.9" },
        { "schedule_free", "betas[0]", "0.9", "0.8" },
        { "schedule_free", "inner_momentum", "0", "0.9" },
        { "schedule_free", "inner_momentum", "0.9", "0" },
    };

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pd_hypers was = vectors_hypers(expected[i].row, OPTIONS(expected[i].name, expected[i].was)),
                  is = vectors_hypers(expected[i].row, OPTIONS(expected[i].name, expected[i].is));
        pd_error err;
        assert_int_equal(pd_hypers_check_step(&was, &is, &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, expected[i].name));
        assert_int_equal(pd_hypers_check_step(&was, &was, &err), PD_OK);
    }
}
