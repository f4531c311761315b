/* Tests the option hyperball of all optimizers that have it: their own steps, with weights of 0 and lr = 1, are the
 * directions of the definition. tests/golden/test_hyperball.c compares it with Emerging-Optimizers. */
#include "test.h"
#include "optimizer_ops.h"
#include "plan_make.h"
#include "vectors.h"

enum { ROWS = 23, COLS = 31, N = ROWS * COLS, STEPS = 6, SIDE = 300 };

static const struct {
    const char *row, *options[8];
} bases[] = {
    { "sgd", { "momentum", "0.9", "nesterov", "yes" } },
    { "sgd", { NULL } },
    { "adam", { "amsgrad", "yes" } },
    { "adamw", { "weight_decay", "0" } },
    { "muon", { "weight_decay", "0", "normuon", "yes" } },
    { "shampoo", { "precondition_frequency", "2", "grafting_config", "Adam", "betas", "0.9,0.99" } },
    { "shampoo", { "precondition_frequency", "1", "momentum", "0.9", "max_preconditioner_dim", "16" } },
    { "soap", { "precondition_frequency", "2", "weight_decay", "0" } },
    { "kl_shampoo", { "precondition_frequency", "2", "weight_decay", "0", "block_size", "16" } },
    { "kl_shampoo", { "using_klsoap", "yes", "precondition_frequency", "1", "weight_decay", "0" } },
};
enum { BASES = sizeof bases / sizeof *bases };

static pd_hypers hypers_of(int base, bool hyperball, const char *lr)
{
    pd_hypers h = vectors_hypers(bases[base].row, bases[base].options);

    assert_int_equal(pd_hypers_set(&h, "lr", lr, NULL), PD_OK);
    assert_int_equal(pd_hypers_set(&h, "hyperball", hyperball ? "yes" : "no", NULL), PD_OK);
    return h;
}

static double norm_of(const double *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static double norm_of_floats(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Takes a step of the definition. minus_u: the direction, with its sign turned. */
static void turn(double *w, const float *minus_u, double radius, double lr)
{
    double scale = norm_of_floats(minus_u, N), norm;

    scale = scale > 1e-15 ? radius / scale : 0;
    for (int i = 0; i < N; i++) w[i] += lr * scale * (double)minus_u[i];
    norm = norm_of(w, N);
    for (int i = 0; i < N; i++) w[i] *= radius / norm;
}

TEST(every_optimizer_turns_matrices_by_its_own_direction)
{
    static const char *const rates[] = { "0.02", "0.3" };

    for (int k = 0; k < BASES; k++) {
        pd_hypers h = hypers_of(k, true, rates[0]), later = hypers_of(k, true, rates[1]),
                  plain = hypers_of(k, false, "1");
        pd_model *model = vectors_model_of(&h, (pd_shape){ 2, { ROWS, COLS } }, 2),
                 *base = vectors_model_of(&plain, (pd_shape){ 2, { ROWS, COLS } }, 2);
        float w[N], gradient[N];
        double twin[N], radius;
        vectors_fill(w, N, 0);
        for (int i = 0; i < N; i++) twin[i] = (double)w[i];
        radius = norm_of(twin, N);
        for (int s = 1; s <= STEPS; s++) {
            float minus_u[N] = { 0 };
            double off = 0;
            vectors_fill(gradient, N, s);
            if (s == 3) memset(gradient, 0, sizeof gradient);
            vectors_step(base, gradient, minus_u, minus_u, NULL);
            turn(twin, minus_u, radius, s > STEPS / 2 ? 0.3 : 0.02);
            vectors_step(model, gradient, w, w, s > STEPS / 2 ? &later : NULL);
            for (int i = 0; i < N; i++) off = fmax(off, fabs((double)w[i] - twin[i]));
            if (!(off < 2e-6)) fail_msg("%s: off by %.3g after step %d", bases[k].row, off, s);
            assert_true(fabs(norm_of_floats(w, N) / radius - 1) < 1e-6);
        }
        vectors_slot(model, "radius", w, 1);
        assert_true(fabs((double)w[0] / radius - 1) < 1e-7);
        pd_model_free(model);
        pd_model_free(base);
    }
}

TEST(vectors_step_as_without_the_option)
{
    static const char *const rows[] = { "sgd", "adam", "adamw", "muon", "shampoo", "soap", "kl_shampoo" };
    float w[2][N], gradient[N];

    for (int k = 0; k < 7; k++) {
        pd_model *models[2];
        for (int i = 0; i < 2; i++) {
            pd_hypers h = vectors_hypers(rows[k], OPTIONS("hyperball", i == 0 ? "no" : "yes", "weight_decay", "0.1"));
            models[i] = vectors_model_of(&h, (pd_shape){ 1, { N } }, 2);
            vectors_fill(w[i], N, 0);
        }
        for (int s = 1; s <= 3; s++) {
            vectors_fill(gradient, N, s);
            for (int i = 0; i < 2; i++) vectors_step(models[i], gradient, w[i], w[i], NULL);
        }
        assert_memory_equal(w[0], w[1], sizeof w[0]);
        assert_int_equal(pd_model_state_bytes(models[0]), pd_model_state_bytes(models[1]));
        for (int i = 0; i < 2; i++) pd_model_free(models[i]);
    }
}

TEST(decay_has_no_effect_and_the_answer_says_so)
{
    pd_hypers with = vectors_hypers("adamw", OPTIONS("hyperball", "yes", "weight_decay", "0.5")),
              without = vectors_hypers("adamw", OPTIONS("hyperball", "yes", "weight_decay", "0"));
    pd_declaration param = { .name = "w", .shape = { 2, { ROWS, COLS } }, .hypers = with };
    pd_model *models[2] = { vectors_model_of(&with, param.shape, 1), vectors_model_of(&without, param.shape, 1) };
    float w[2][N], gradient[N];
    pd_plan plan;
    pd_error err;

    for (int i = 0; i < 2; i++) vectors_fill(w[i], N, 0);
    vectors_fill(gradient, N, 1);
    for (int i = 0; i < 2; i++) vectors_step(models[i], gradient, w[i], w[i], NULL);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    for (int i = 0; i < 2; i++) pd_model_free(models[i]);
    assert_int_equal(pd_plan_make(&plan, &param, NULL, &err), PD_OK);
    assert_string_equal(plan.note, "hyperball keeps its norm, so that weight_decay has no effect");
    pd_plan_free(&plan);
}

/* The sums that a step needs are folded in the order of the units. `after` may be other memory than `before`, which a
 * temporary slot then uses. */
TEST(threads_and_place_change_no_bit)
{
    for (int k = 0; k < BASES && k <= 4; k++) { /* the roots of those after them take long */
        pd_hypers h = hypers_of(k, true, "0.1");
        vectors_check_threads(&h, (pd_shape){ 2, { SIDE, SIDE } });
    }
}

TEST(a_matrix_of_zeros_stays)
{
    static const float zeros[N];
    float w[N] = { 0 }, gradient[N];
    pd_hypers h = vectors_hypers("adamw", OPTIONS("hyperball", "yes"));
    pd_model *model = vectors_model_of(&h, (pd_shape){ 2, { ROWS, COLS } }, 1);

    for (int s = 1; s <= 3; s++) {
        vectors_fill(gradient, N, s);
        vectors_step(model, gradient, w, w, NULL);
    }
    assert_memory_equal(w, zeros, sizeof w);
    pd_model_free(model);
}

TEST(the_option_stays_as_declared_and_gives_no_updates)
{
    pd_hypers yes = vectors_hypers("shampoo", OPTIONS("hyperball", "yes")),
              no = vectors_hypers("shampoo", OPTIONS(NULL));
    pd_error err;

    assert_int_equal(pd_hypers_check_step(&no, &yes, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(no.row->update_dtype(no.value), PD_F32);
    assert_int_equal(yes.row->update_dtype(yes.value), 0);
}
