/* Tests mars against its definition, written in double, one element at a time, and what it takes from a declaration.
 * tests/golden/test_mars.c compares it with its authors' program. */
#include "test.h"
#include "convert.h"
#include "vectors.h"

/* N: several of the tiles over which squares are summed, and a remainder. LARGE: side of three units of work. */
enum { ROWS = 61, COLS = 41, N = ROWS * COLS, LARGE = 401, STEPS = 8 };

static const pd_shape matrix = { 2, { ROWS, COLS } }, vector = { 1, { N } };

typedef struct twin {
    double w[N], m[N], v[N], x[N], last[N];
    int count;
} twin;

/* A step of the definition. Without `mars`, those of AdamW for vectors: rate_1d, betas_1d ... */
static void twin_step(const pd_hypers *h, twin *t, const float *gradient, bool mars, double rate_1d)
{
    const double b1 = vectors_value(h, mars ? "betas[0]" : "betas_1d[0]"),
                 b2 = vectors_value(h, mars ? "betas[1]" : "betas_1d[1]"),
                 decay = vectors_value(h, mars ? "weight_decay" : "weight_decay_1d"),
                 rate = mars ? vectors_value(h, "lr") : rate_1d,
                 change = mars ? vectors_value(h, "gamma") * b1 / (1 - b1) : 0;
    double c[N], norm = 0;

    t->count++;
    for (int i = 0; i < N; i++) {
        c[i] = ((double)gradient[i] - t->last[i]) * change + (double)gradient[i];
        norm += c[i] * c[i];
        t->last[i] = (double)gradient[i];
    }
    norm = mars ? fmax(1, sqrt(norm)) : 1;
    for (int i = 0; i < N; i++) {
        double u = c[i] / norm;
        t->m[i] = b1 * t->m[i] + (1 - b1) * u;
        t->v[i] = b2 * t->v[i] + (1 - b2) * u * u;
        t->x[i] = vectors_value(h, "amsgrad") != 0 ? fmax(t->x[i], t->v[i]) : t->v[i];
        u = t->m[i] / ((sqrt(t->x[i] / (1 - pow(b2, t->count))) + vectors_value(h, "eps")) * (1 - pow(b1, t->count)));
        if (mars && vectors_value(h, "mars_type") != 0) u = t->m[i] > 0 ? 1 : t->m[i] < 0 ? -1 : 0;
        t->w[i] -= rate * (decay * t->w[i] + u);
    }
}

/* Checks that the weights equal the definition's after each step. scale: size of the gradients. share: lr_1d's rate as
 * a multiple of lr; 0: lr_1d is the rate. From the middle on, the options are `later`. */
static void follows(pd_shape shape, const char *const *options, const char *const *later, float scale, double share)
{
    pd_hypers h = vectors_hypers("mars", OPTIONS(NULL)), now;
    twin *t = calloc(1, sizeof *t);
    float w[N], gradient[N];
    pd_model *model;
    bool mars;

    for (const char *const *o = options; o[0] != NULL; o += 2) /* in place: a schedule belongs to its pd_hypers */
        assert_int_equal(pd_hypers_set(&h, o[0], o[1], NULL), PD_OK);
    now = h;
    model = vectors_model_of(&h, shape, 2);
    mars = shape.rank == 2 || vectors_value(&h, "optimize_1d") != 0;
    vectors_fill(w, N, 0);
    for (int i = 0; i < N; i++) t->w[i] = (double)w[i];
    for (int s = 1; s <= STEPS; s++) {
        double off = 0, norm = 0;
        vectors_fill(gradient, N, s);
        for (int i = 0; i < N; i++) gradient[i] *= scale;
        if (s == STEPS / 2)
            for (const char *const *o = later; o[0] != NULL; o += 2)
                assert_int_equal(pd_hypers_set(&now, o[0], o[1], NULL), PD_OK);
        twin_step(&now, t, gradient, mars, vectors_value(&now, share > 0 ? "lr" : "lr_1d") * (share > 0 ? share : 1));
        vectors_step(model, gradient, w, w, &now);
        for (int i = 0; i < N; i++) {
            off += ((double)w[i] - t->w[i]) * ((double)w[i] - t->w[i]);
            norm += t->w[i] * t->w[i];
        }
        if (!(sqrt(off / norm) < 3e-6)) fail_msg("%s: off by %.3g after step %d", options[0], sqrt(off / norm), s);
    }
    pd_model_free(model);
    pd_hypers_free(&h);
    free(t);
}

TEST(matrices_follow_the_definition)
{
    static const float scales[] = { 1, 1e-4f }; /* with and without clipping */

    for (int k = 0; k < 2; k++) {
        follows(matrix, OPTIONS("lr", "0.01"), OPTIONS("lr", "0.03"), scales[k], 0);
        follows(matrix, OPTIONS("betas", "0.8,0.9", "gamma", "0.1", "eps", "1e-3", "weight_decay", "0.2"),
                OPTIONS("betas", "0.9,0.95", "gamma", "0"), scales[k], 0);
        follows(matrix, OPTIONS("amsgrad", "yes", "betas", "0.8,0.6"), OPTIONS("lr", "0.01"), scales[k], 0);
        follows(matrix, OPTIONS("mars_type", "mars-lion", "weight_decay", "0.2"), OPTIONS("lr", "0.01"), scales[k], 0);
    }
}

TEST(others_step_by_adamw_unless_they_are_told_not_to)
{
    follows(vector, OPTIONS("lr", "0.01", "lr_1d", "0.03"), OPTIONS("lr", "0.05"), 1, 3);
    follows(vector, OPTIONS("mars_type", "mars-lion", "amsgrad", "yes"), OPTIONS("betas_1d", "0.5,0.9"), 1, 1);
    follows(vector, OPTIONS("optimize_1d", "yes", "weight_decay", "0.1"), OPTIONS("lr", "0.01"), 1, 0);
    follows((pd_shape){ 3, { ROWS, 1, COLS } }, OPTIONS("weight_decay_1d", "0.3"), OPTIONS("lr", "0.01"), 1, 1);
}

TEST(where_lr_is_a_schedule_or_zero_lr_1d_is_the_rate)
{
    follows(vector, OPTIONS("lr", "linear(init=0.1,end=0,steps=20)", "lr_1d", "0.01"), OPTIONS("lr_1d", "0.02"), 1, 0);
    follows(vector, OPTIONS("lr", "0", "lr_1d", "0.01"), OPTIONS("lr", "0.1"), 1, 0);
}

TEST(state_is_what_the_kind_needs)
{
    static const struct {
        const char *option, *value;
        bool vector;
        int64_t bytes;
    } expected[] = {
        { "lr", "0.1", false, 12 * N },
        { "amsgrad", "yes", false, 16 * N },
        { "mars_type", "mars-lion", false, 8 * N },
        { "mars_type", "mars-lion", true, 12 * N },
        { "last_grad_dtype", "bfloat16", false, 10 * N },
    };

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pd_hypers h = vectors_hypers("mars", OPTIONS(expected[i].option, expected[i].value));
        pd_model *model = vectors_model_of(&h, expected[i].vector ? vector : matrix, 1);
        assert_int_equal(pd_model_state_bytes(model), expected[i].bytes);
        pd_model_free(model);
    }
}

TEST(the_last_gradient_is_kept_in_bfloat16_if_so_chosen)
{
    pd_hypers h = vectors_hypers("mars", OPTIONS("last_grad_dtype", "bfloat16"));
    pd_model *model = vectors_model_of(&h, matrix, 1);
    float w[N], gradient[N], last[N];

    vectors_fill(w, N, 0);
    vectors_fill(gradient, N, 1);
    vectors_step(model, gradient, w, w, NULL);
    vectors_slot(model, "last_grad", last, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pd_f32_bits(last[i]) & 0xffff, 0);
        assert_true(fabsf(last[i] - gradient[i]) <= 0x1p-8f * fabsf(gradient[i]));
    }
    pd_model_free(model);
}

/* The norm is summed over units of work, whose number follows from the shape. */
TEST(threads_and_place_change_no_bit)
{
    pd_hypers h = vectors_hypers("mars", OPTIONS("lr", "0.1"));

    vectors_check_threads(&h, (pd_shape){ 2, { LARGE, LARGE } });
}

TEST(a_nan_is_not_clipped_and_stays_with_its_element)
{
    pd_hypers h = vectors_hypers("mars", OPTIONS("lr", "0.1"));
    pd_model *model = vectors_model_of(&h, matrix, 2);
    float w[N], gradient[N];

    vectors_fill(w, N, 0);
    for (int s = 1; s <= 3; s++) {
        vectors_fill(gradient, N, s);
        if (s == 2) gradient[5] = NAN;
        vectors_step(model, gradient, w, w, NULL);
    }
    for (int i = 0; i < N; i++) assert_true(isnan(w[i]) == (i == 5));
    pd_model_free(model);
}

TEST(defaults_equal_upstreams)
{
    static const struct {
        const char *name;
        double preset;
    } expected[] = { { "lr", 3e-3 },
                     { "betas[0]", 0.95 },
                     { "betas[1]", 0.99 },
                     { "eps", 1e-8 },
                     { "weight_decay", 0 },
                     { "amsgrad", 0 },
                     { "gamma", 0.025 },
                     { "mars_type", 0 },
                     { "optimize_1d", 0 },
                     { "lr_1d", 3e-3 },
                     { "betas_1d[0]", 0.9 },
                     { "betas_1d[1]", 0.95 },
                     { "weight_decay_1d", 0.1 } };
    pd_hypers h = vectors_hypers("mars", OPTIONS(NULL)), other = h;
    pd_error err;

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(vectors_value(&h, expected[i].name) == expected[i].preset);
    assert_int_equal(pd_hypers_set(&h, "betas_1d", "0.9,1", &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&h, "gamma", "-1", &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&other, "optimize_1d", "yes", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&h, &other, &err), PD_INVALID_ARGUMENT);
}
