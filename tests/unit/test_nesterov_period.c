/* Tests delayed_nesterov: its definition bit for bit, the period's borders, and its relation to sgd.
 * tests/golden/test_delayed_nesterov.c replays recorded runs. */
#include "test.h"
#include "vectors.h"

/* LARGE: three units of work, the last of which ends with part of a SIMD vector */
enum { N = 65, LARGE = 150001 };

typedef struct fixture {
    float w[LARGE], a[LARGE], b[LARGE], gradient[LARGE], expected[LARGE], slot[LARGE];
} fixture;

static void set_up(fixture *s)
{
    vectors_fill(s->w, LARGE, 0);
    memcpy(s->expected, s->w, sizeof s->w);
}

FIXTURE(fixture, set_up, NULL);

static float value(const pd_hypers *h, const char *name)
{
    return (float)vectors_value(h, name);
}

/* The reference: step number `count` by the formulas in delayed_nesterov.c, one operation at a time. `volatile` rounds
 * each result to float32, and keeps the compiler from reordering operations. */
static void naive(fixture *s, const pd_hypers *h, int count)
{
    const float lr = value(h, "lr"), mu = value(h, "momentum"), n = value(h, "period"), c = value(h, "spread");
    const float decay = value(h, "weight_decay");
    const bool last = count % (int)n == 0;
    volatile float factor = c * n, g, t, u;

    factor = 1 - factor;
    factor = factor + c;
    if (!last) factor = c;
    factor = factor * mu;
    for (int i = 0; i < LARGE; i++) {
        g = s->gradient[i];
        if (value(h, "maximize") != 0) g = -g;
        t = decay * s->expected[i];
        if (decay != 0) g = g + t;
        s->a[i] = s->a[i] + g;
        t = mu * s->b[i];
        u = s->a[i] / n;
        if (last) s->b[i] = t + u, s->a[i] = 0;
        t = factor * s->b[i];
        u = g / n;
        t = t + u;
        t = lr * t;
        s->expected[i] = s->expected[i] - t;
    }
}

/* Takes 9 steps, after 5 of them with the options `later`, and compares weights and slots with the reference. */
static void follows_the_definition(fixture *s, const char *const *options, const char *const *later)
{
    static const int64_t n = LARGE;
    pd_hypers h = vectors_hypers("delayed_nesterov", options), now = h;
    pd_model *model = vectors_model(&h, &n, 1, 2);

    for (int count = 1; count <= 9; count++) {
        vectors_fill(s->gradient, LARGE, count);
        if (count == 6)
            for (; later[0] != NULL; later += 2) assert_int_equal(pd_hypers_set(&now, later[0], later[1], NULL), PD_OK);
        naive(s, &now, count);
        vectors_step(model, s->gradient, s->w, s->w, &now);
        assert_memory_equal(s->w, s->expected, sizeof s->w);
        vectors_slot(model, "grad_sum", s->slot, LARGE);
        assert_memory_equal(s->slot, s->a, sizeof s->a);
        vectors_slot(model, "momentum_buffer", s->slot, LARGE);
        assert_memory_equal(s->slot, s->b, sizeof s->b);
    }
    pd_model_free(model);
}

HOLDS_FOR(fixture *s, the_defaults_follow_the_definition,
          follows_the_definition(s, OPTIONS(NULL), OPTIONS("lr", "0.7")));
HOLDS_FOR(fixture *s, a_period_of_three_follows_the_definition,
          follows_the_definition(s, OPTIONS("period", "3", "lr", "0.7"), OPTIONS("lr", "0.1", "momentum", "0.5")));
HOLDS_FOR(fixture *s, a_spread_follows_the_definition,
          follows_the_definition(s, OPTIONS("period", "3", "spread", "0.2"), OPTIONS("spread", "0.333333333")));
HOLDS_FOR(fixture *s, no_momentum_follows_the_definition,
          follows_the_definition(s, OPTIONS("period", "7", "spread", "0.1", "momentum", "0"),
                                 OPTIONS("momentum", "1")));
HOLDS_FOR(fixture *s, decay_and_maximize_follow_the_definition,
          follows_the_definition(s, OPTIONS("period", "3", "weight_decay", "0.02", "maximize", "yes"),
                                 OPTIONS("weight_decay", "0")));

/* A period of 1 leaves no step over which the momentum could be spread. */
TEST(a_period_of_one_has_the_bits_of_sgd_with_nesterov)
{
    static const int64_t n = N;
    static const char *const spreads[] = { "0", "1" };
    float w[2][N], gradient[N];

    for (int k = 0; k < 2; k++) {
        pd_hypers ours = vectors_hypers("delayed_nesterov", OPTIONS("lr", "0.7", "spread", spreads[k])),
                  sgd = vectors_hypers("sgd", OPTIONS("lr", "0.7", "momentum", "0.9", "nesterov", "yes"));
        pd_model *models[2] = { vectors_model(&ours, &n, 1, 1), vectors_model(&sgd, &n, 1, 1) };
        for (int i = 0; i < 2; i++) vectors_fill(w[i], N, 0);
        for (int s = 1; s <= 20; s++) {
            vectors_fill(gradient, N, s);
            if (s == 11) {
                assert_int_equal(pd_hypers_set(&ours, "lr", "0.1", NULL), PD_OK);
                assert_int_equal(pd_hypers_set(&sgd, "lr", "0.1", NULL), PD_OK);
            }
            vectors_step(models[0], gradient, w[0], w[0], &ours);
            vectors_step(models[1], gradient, w[1], w[1], &sgd);
            assert_memory_equal(w[0], w[1], sizeof w[0]);
        }
        for (int i = 0; i < 2; i++) pd_model_free(models[i]);
    }
}

/* The gradients are small integers, and the factors powers of 2. So sums are exact, and their order does not matter. */
TEST(a_period_moves_as_far_as_one_step_of_sgd_with_the_mean_gradient)
{
    static const int64_t n = N;
    pd_hypers ours = vectors_hypers("delayed_nesterov", OPTIONS("lr", "0.5", "momentum", "0.5", "period", "4")),
              sgd = vectors_hypers("sgd", OPTIONS("lr", "0.5", "momentum", "0.5", "nesterov", "yes"));
    pd_model *each = vectors_model(&ours, &n, 1, 1), *mean = vectors_model(&sgd, &n, 1, 1);
    float w[N] = { 0 }, v[N] = { 0 }, gradient[N], sum[N];

    for (int period = 0; period < 3; period++) {
        memset(sum, 0, sizeof sum);
        for (int s = 0; s < 4; s++) {
            for (int i = 0; i < N; i++) sum[i] += gradient[i] = (float)((i * 7 + period * 5 + s * 3) % 11 - 5);
            vectors_step(each, gradient, w, w, NULL);
        }
        for (int i = 0; i < N; i++) sum[i] /= 4;
        vectors_step(mean, sum, v, v, NULL);
        for (int i = 0; i < N; i++) assert_true(w[i] == v[i]);
    }
    pd_model_free(each);
    pd_model_free(mean);
}

TEST(without_momentum_each_step_is_sgds_with_a_share_of_the_gradient)
{
    static const int64_t n = N;
    pd_hypers ours = vectors_hypers("delayed_nesterov", OPTIONS("lr", "0.7", "momentum", "0", "period", "8")),
              sgd = vectors_hypers("sgd", OPTIONS("lr", "0.7"));
    pd_model *models[2] = { vectors_model(&ours, &n, 1, 1), vectors_model(&sgd, &n, 1, 1) };
    float w[2][N], gradient[N], eighth[N];

    for (int i = 0; i < 2; i++) vectors_fill(w[i], N, 0);
    for (int s = 1; s <= 20; s++) {
        vectors_fill(gradient, N, s);
        for (int i = 0; i < N; i++) eighth[i] = gradient[i] / 8;
        vectors_step(models[0], gradient, w[0], w[0], NULL);
        vectors_step(models[1], eighth, w[1], w[1], NULL);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
    for (int i = 0; i < 2; i++) pd_model_free(models[i]);
}

TEST(the_momentum_changes_in_the_last_step_of_a_period_alone)
{
    static const int64_t n = N;
    static const float zero[N];
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "5", "spread", "0.1"));
    pd_model *model = vectors_model(&h, &n, 1, 1);
    float w[N], gradient[N], before[N] = { 0 }, momentum[N], sum[N];

    vectors_fill(w, N, 0);
    for (int s = 1; s <= 15; s++) {
        vectors_fill(gradient, N, s);
        vectors_step(model, gradient, w, w, NULL);
        vectors_slot(model, "momentum_buffer", momentum, N);
        vectors_slot(model, "grad_sum", sum, N);
        assert_true((memcmp(momentum, before, sizeof momentum) != 0) == (s % 5 == 0));
        assert_true((memcmp(sum, zero, sizeof sum) == 0) == (s % 5 == 0));
        memcpy(before, momentum, sizeof before);
    }
    pd_model_free(model);
}

/* The numbers are computed by hand: gradients 2, 2, 0, 0 make the momentum 2 after step 2, and 1 after step 4. */
TEST(the_spread_divides_the_momentum_between_the_steps_of_a_period)
{
    static const int64_t n = 1;
    static const float gradients[4] = { 2, 2, 0, 0 };
    static const struct {
        const char *spread;
        float weights[4];
    } expected[] = {
        { "0", { -1, -3, -3, -3.5F } },
        { "0.25", { -1, -2.75F, -3, -3.375F } },
        { "0.5", { -1, -2.5F, -3, -3.25F } },
    };

    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        pd_hypers h = vectors_hypers(
            "delayed_nesterov", OPTIONS("period", "2", "lr", "1", "momentum", "0.5", "spread", expected[k].spread));
        pd_model *model = vectors_model(&h, &n, 1, 1);
        float w = 0;
        for (int s = 0; s < 4; s++) {
            vectors_step(model, &gradients[s], &w, &w, NULL);
            if (w != expected[k].weights[s])
                fail_msg("spread %s, step %d: weight %g", expected[k].spread, s + 1, (double)w);
        }
        pd_model_free(model);
    }
}

TEST(a_spread_above_one_over_the_period_is_refused)
{
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "4", "spread", "0.26"));
    pd_error err;

    assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "delayed_nesterov: spread must be at most 1/period, got spread 0.26 and period 4, "
                                  "1/period 0.25");
}

TEST(one_over_the_period_is_a_spread_in_float32_and_in_double)
{
    static const char *const thirds[] = { "0.3333333333333333", "0.333333343" };

    for (int k = 0; k < 2; k++) {
        pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "3", "spread", thirds[k]));
        assert_int_equal(pd_hypers_check(&h, NULL), PD_OK);
    }
}

TEST(a_spread_that_comes_with_a_push_is_checked_against_the_period)
{
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "4")),
              now = vectors_hypers("delayed_nesterov", OPTIONS("period", "4", "spread", "0.5"));
    pd_error err;

    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "spread must be at most 1/period"));
}

TEST(a_schedule_that_takes_the_spread_too_far_is_refused)
{
    pd_hypers h; /* owns its schedule at this address, so it cannot be copied */
    pd_error err;

    pd_hypers_init(&h, pd_optim_find("delayed_nesterov"));
    assert_int_equal(pd_hypers_set(&h, "period", "4", &err), PD_OK);
    assert_int_equal(pd_hypers_set(&h, "spread", "linear(init=0,end=0.5,steps=9)", &err), PD_OK);
    assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "spread must be at most 1/period"));
    pd_hypers_free(&h);
}

TEST(the_period_stays_as_declared)
{
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "4")),
              now = vectors_hypers("delayed_nesterov", OPTIONS("period", "3"));
    pd_error err;

    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "period"));
}

TEST(a_period_of_half_a_step_is_refused)
{
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS(NULL));
    pd_error err;

    assert_int_not_equal(pd_hypers_set(&h, "period", "1.5", &err), PD_OK);
    assert_non_null(strstr(err.text, "period"));
}

/* The largest gradients that are accepted, in each step of several periods, with the longest sums in between. */
TEST(the_largest_gradients_leave_the_state_finite)
{
    static const int64_t n = N;
    pd_hypers h = vectors_hypers("delayed_nesterov", OPTIONS("period", "200"));
    pd_model *model = vectors_model(&h, &n, 1, 1);
    float w[N] = { 0 }, gradient[N], momentum[N];

    for (int i = 0; i < N; i++) gradient[i] = 0x1.fffffep63F;
    for (int s = 0; s < 1000; s++) vectors_step(model, gradient, w, w, NULL);
    vectors_slot(model, "momentum_buffer", momentum, N);
    for (int i = 0; i < N; i++) assert_true(isfinite(w[i]) && isfinite(momentum[i]) && momentum[i] > 0x1p63F);
    pd_model_free(model);
}
