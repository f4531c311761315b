/* Tests muon against its definition in double, what it makes of shapes, and what its plan tells. tests/golden compares
 * it with the programs of torch and of Keller Jordan. */
#include "test.h"
#include "convert.h"
#include "optimizer.h"
#include "polar_twin.h"
#include "vectors.h"

enum { ROWS = 21, COLS = 34, N = ROWS * COLS, STEPS = 5, TRIPLES = 1 };

static const pd_shape matrix = { 2, { ROWS, COLS } }, tall = { 2, { COLS, ROWS } }, vector = { 1, { N } },
                      batch = { 3, { 2, 17, 21 } }, kernel = { 4, { 21, 2, 17, 1 } }, five = { 5, { 1, 2, 1, 17, 21 } };

typedef struct twin {
    double w[N], b[N], v[N], rows[N];
    int count;
} twin;

static double of(const pd_hypers *h, const char *name)
{
    return vectors_value(h, name);
}

/* Evens the rows of O out by the moving averages v of their mean squares. */
static void even_out(const pd_hypers *h, double *O, double *v, int64_t rows, int64_t cols)
{
    const double before = polar_norm(O, rows * cols), beta = of(h, "muon_beta2");
    double after;

    for (int64_t i = 0; i < rows; i++) {
        double norm = polar_norm(O + i * cols, cols);
        v[i] = beta * v[i] + (1 - beta) * norm * norm / (double)cols;
        for (int64_t j = 0; j < cols; j++) O[i * cols + j] /= sqrt(v[i]) + 1e-8;
    }
    after = polar_norm(O, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) O[i] *= before / after;
}

/* A step of n matrices; last_rows and last_cols are the two last sizes of the parameter. */
static void matrix_step(const pd_hypers *h, twin *t, const float *gradient, int64_t n, int64_t rows, int64_t cols,
                        double ratio)
{
    const double mu = of(h, "momentum"), most = (double)(rows > cols ? rows : cols),
                 factors[TRIPLES][3] = { { of(h, "ns_coefficients[0]"), of(h, "ns_coefficients[1]"),
                                           of(h, "ns_coefficients[2]") } },
                 scales[] = { sqrt(fmax(1, ratio)), sqrt(fmax(1, ratio)), 0.2 * sqrt(most), sqrt(ratio),
                              sqrt(fmax(1, 1 / ratio)) },
                 scale = scales[(int)of(h, "adjust_lr_fn")];
    static double u[POLAR_MOST];

    for (int64_t k = 0; k < n; k++) {
        int64_t each = rows * cols;
        double *w = t->w + k * each, *b = t->b + k * each;
        for (int64_t i = 0; i < each; i++) {
            double g = (double)gradient[k * each + i];
            b[i] = mu * b[i] + (1 - mu) * g;
            u[i] = of(h, "nesterov") != 0 ? mu * b[i] + (1 - mu) * g : b[i];
        }
        polar_twin(u, rows, cols, polar_norm(u, each) + 1e-7, factors, TRIPLES, (int)of(h, "ns_steps"));
        if (of(h, "normuon") != 0) even_out(h, u, t->rows + k * rows, rows, cols);
        for (int64_t i = 0; i < each; i++)
            w[i] = (1 - of(h, "lr") * of(h, "weight_decay")) * w[i] - of(h, "lr") * scale * u[i];
    }
}

static void adam_step(const pd_hypers *h, twin *t, const float *gradient)
{
    const double b1 = of(h, "adam_betas[0]"), b2 = of(h, "adam_betas[1]"), lr = of(h, "adam_lr");

    for (int i = 0; i < N; i++) {
        double g = (double)gradient[i];
        t->b[i] = b1 * t->b[i] + (1 - b1) * g;
        t->v[i] = b2 * t->v[i] + (1 - b2) * g * g;
        t->w[i] -= lr * of(h, "adam_weight_decay") * t->w[i];
        t->w[i] -=
            lr * (t->b[i] / (1 - pow(b1, t->count))) / (sqrt(t->v[i] / (1 - pow(b2, t->count))) + of(h, "adam_eps"));
    }
}

/* Checks that the weights equal the definition's after each step: n matrices of rows x cols, scaled by the ratio of the
 * parameter's last two sizes; n = 0: AdamW. In the second half of the steps, the options are `later`. */
static void follows(pd_shape shape, const char *const *options, const char *const *later, int64_t n, int64_t rows,
                    int64_t cols, double ratio)
{
    pd_hypers h = vectors_hypers("muon", options), now = h;
    pd_model *model = vectors_model_of(&h, shape, 2);
    twin *t = calloc(1, sizeof *t);
    float w[N], gradient[N];

    assert_true(n == 0 || n * rows * cols == N);
    vectors_fill(w, N, 0);
    for (int i = 0; i < N; i++) t->w[i] = (double)w[i];
    for (int s = 1; s <= STEPS; s++) {
        double off = 0;
        vectors_fill(gradient, N, s);
        if (s > STEPS / 2)
            for (const char *const *o = later; o[0] != NULL; o += 2)
                assert_int_equal(pd_hypers_set(&now, o[0], o[1], NULL), PD_OK);
        t->count = s;
        if (n > 0)
            matrix_step(&now, t, gradient, n, rows, cols, ratio);
        else
            adam_step(&now, t, gradient);
        vectors_step(model, gradient, w, w, &now);
        for (int i = 0; i < N; i++) off = fmax(off, fabs((double)w[i] - t->w[i]));
        if (!(off < 1e-4)) fail_msg("%s %s: off by %.3g after step %d", options[0], options[1], off, s);
    }
    pd_model_free(model);
    free(t);
}

TEST(matrices_follow_the_definition)
{
    static const char *const scales[] = { "none", "original", "match_rms_adamw", "spectral_norm", "in_out" };
    static const char *const classic = "1.875,-1.25,0.375";

    for (int k = 0; k < 5; k++) {
        follows(matrix, OPTIONS("adjust_lr_fn", scales[k], "lr", "0.1"), OPTIONS("lr", "0.2", "weight_decay", "0"), 1,
                ROWS, COLS, (double)ROWS / COLS);
        follows(tall, OPTIONS("adjust_lr_fn", scales[k], "lr", "0.1"), OPTIONS("momentum", "0.5"), 1, COLS, ROWS,
                (double)COLS / ROWS);
    }
    follows(matrix, OPTIONS("nesterov", "no", "ns_steps", "3", "ns_coefficients", classic, "lr", "0.1"),
            OPTIONS("nesterov", "yes"), 1, ROWS, COLS, (double)ROWS / COLS);
}

TEST(rows_are_evened_out)
{
    follows(matrix, OPTIONS("normuon", "yes", "lr", "0.1"), OPTIONS("muon_beta2", "0.5"), 1, ROWS, COLS,
            (double)ROWS / COLS);
    follows(batch, OPTIONS("form", "keller", "normuon", "yes", "lr", "0.1"), OPTIONS("muon_beta2", "0.5"), 2, 17, 21,
            17.0 / 21);
}

TEST(shapes_are_matrices_batches_or_no_matrices_as_the_form_says)
{
    follows(vector, OPTIONS("adam_lr", "0.1", "adam_weight_decay", "0.5"), OPTIONS("adam_betas", "0.5,0.8"), 0, 0, 0,
            0);
    follows(batch, OPTIONS("adam_eps", "0.1"), OPTIONS("adam_lr", "0.01"), 0, 0, 0, 0);
    follows(kernel, OPTIONS("form", "torch"), OPTIONS("adam_lr", "0.01"), 0, 0, 0, 0);
    follows(vector, OPTIONS("form", "keller"), OPTIONS("adam_lr", "0.01"), 0, 0, 0, 0);
    follows(batch, OPTIONS("form", "keller", "lr", "0.1"), OPTIONS("lr", "0.2"), 2, 17, 21, 17.0 / 21);
    follows(five, OPTIONS("form", "keller", "lr", "0.1"), OPTIONS("lr", "0.2"), 2, 17, 21, 17.0 / 21);
    follows(kernel, OPTIONS("form", "keller", "lr", "0.1"), OPTIONS("lr", "0.2"), 1, 21, 34, 17);
}

TEST(polar_express_takes_no_coefficients)
{
    float w[2][N], gradient[N];

    vectors_fill(gradient, N, 1);
    for (int k = 0; k < 2; k++) {
        pd_hypers h = vectors_hypers("muon", OPTIONS("polynomial", "polar_express", "ns_steps", "8", "ns_coefficients",
                                                     k == 0 ? "1,2,3" : "3,2,1", "weight_decay", "0", "lr", "1"));
        pd_model *model = vectors_model_of(&h, matrix, 1);
        memset(w[k], 0, sizeof w[k]);
        vectors_step(model, gradient, w[k], w[k], NULL);
        pd_model_free(model);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    for (int i = 0; i < ROWS; i++) { /* rows of the direction are orthonormal */
        double dot = 0;
        for (int j = 0; j < COLS; j++) dot += (double)w[0][i * COLS + j] * (double)w[0][i * COLS + j];
        assert_true(fabs(dot - 1) < 1e-4);
    }
}

TEST(state_is_what_the_kind_needs)
{
    static const struct {
        const char *option, *value;
        const pd_shape *shape;
        int64_t bytes;
    } expected[] = {
        { "lr", "1", &matrix, 4 * N },
        { "mu_dtype", "bfloat16", &matrix, 2 * N },
        { "normuon", "yes", &matrix, 4 * N + 4 * ROWS },
        { "lr", "1", &vector, 8 * N },
        { "form", "keller", &batch, 4 * N },
    };

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pd_hypers h = vectors_hypers("muon", OPTIONS(expected[i].option, expected[i].value));
        pd_model *model = vectors_model_of(&h, *expected[i].shape, 1);
        assert_int_equal(pd_model_state_bytes(model), expected[i].bytes);
        pd_model_free(model);
    }
}

TEST(a_plan_tells_matrices_and_work)
{
    pd_hypers h = vectors_hypers("muon", OPTIONS("form", "keller", "normuon", "yes"));
    pd_declaration param = { .name = "w", .shape = batch, .hypers = h };
    const pd_shape rows = { 3, { 2, 17, 1 } };
    pd_plan plan;
    pd_error err;

    assert_int_equal(pd_plan_make(&plan, &param, NULL, &err), PD_OK);
    assert_int_equal(plan.n_blocks, 2);
    assert_int_equal(plan.blocks[1].start[0], 1);
    assert_int_equal(plan.blocks[1].size[0], 1);
    assert_int_equal(plan.blocks[1].size[2], 21);
    assert_true(plan.flops == 2 * 5.0 * (3 * 17 * 17 * 21 + 17 * 17 * 17));
    assert_true(pd_shape_equal(&plan.slots[2].shape, &rows));
    assert_false(plan.large_products);
    pd_plan_free(&plan);
    param.shape = (pd_shape){ 3, { 1 << 19, 2, 2 } };
    assert_int_equal(pd_plan_make(&plan, &param, NULL, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "muon: 524288 matrices of 2 x 2: expected at most 262144"));
}

TEST(threads_and_place_change_no_bit)
{
    pd_hypers h = vectors_hypers("muon", OPTIONS("lr", "0.1", "normuon", "yes", "compute", "bfloat16"));

    vectors_check_threads(&h, (pd_shape){ 2, { 300, 300 } });
}

TEST(defaults_equal_torchs)
{
    static const struct {
        const char *name;
        double preset;
    } expected[] = { { "lr", 1e-3 },       { "weight_decay", 0.1 },          { "momentum", 0.95 },
                     { "nesterov", 1 },    { "ns_coefficients[0]", 3.4445 }, { "ns_coefficients[1]", -4.7750 },
                     { "eps", 1e-7 },      { "ns_coefficients[2]", 2.0315 }, { "ns_steps", 5 },
                     { "adam_lr", 3e-4 },  { "adam_betas[0]", 0.9 },         { "adam_betas[1]", 0.95 },
                     { "adam_eps", 1e-10 } };
    pd_hypers h = vectors_hypers("muon", OPTIONS(NULL)), other = h;
    pd_error err;

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(of(&h, expected[i].name) == expected[i].preset);
    assert_int_equal(pd_hypers_set(&h, "ns_steps", "100", &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&h, "form", "google", &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_hypers_set(&other, "normuon", "yes", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&h, &other, &err), PD_INVALID_ARGUMENT);
}
