/* Tests the option orthogonalize of soap and kl_shampoo: directions of matrices whose singular values are brought near
 * each other. */
#include "test.h"
#include "optimizer_ops.h"
#include "plan_make.h"
#include "polar_twin.h"
#include "shampoos.h"

typedef shampoo_run run;

static const char *const optimizers[] = { "soap", "kl_shampoo" };
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers, STEPS = 8 };

/* Newton-Schulz as muon has it. */
static const double newton[1][3] = { { 3.4445, -4.7750, 2.0315 } };

/* Replaces the direction N by its orthogonalized form, with the norm that it had. */
static void orthogonalize(double *N, int64_t rows, int64_t cols)
{
    double before = polar_norm(N, rows * cols), after;

    polar_twin(N, rows, cols, before, newton, 1, 5);
    after = polar_norm(N, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) N[i] *= before / after;
}

/* Moves one run by plain directions and one by orthogonalized ones, with the same gradients. Their states are equal, so
 * the moves of the second one are those of the first one, orthogonalized. */
static void compare(const char *optimizer, const char *hypers, int64_t rows, int64_t cols)
{
    const pd_shape shape = { 2, { rows, cols } };
    const int64_t n = rows * cols;
    char text[256];
    run plain, turned;
    double *moved = calloc((size_t)n, sizeof *moved), *turn = calloc((size_t)n, sizeof *turn);

    snprintf(text, sizeof text, "%s lr=1 weight_decay=0", hypers);
    plain = shampoo_run_of(optimizer, &shape, text, 0);
    snprintf(text, sizeof text, "%s lr=1 weight_decay=0 orthogonalize=yes", hypers);
    turned = shampoo_run_of(optimizer, &shape, text, 0);
    shampoo_run_begin(&plain);
    shampoo_run_begin(&turned);
    for (int t = 0; t < STEPS; t++) {
        shampoo_run_draw(&plain);
        memcpy(turned.gradient[0], plain.gradient[0], (size_t)n * sizeof(float));
        memset(plain.weights[0], 0, (size_t)n * sizeof(float));
        memset(turned.weights[0], 0, (size_t)n * sizeof(float));
        shampoo_run_step(&plain);
        shampoo_run_step(&turned);
        for (int64_t i = 0; i < n; i++) {
            moved[i] = (double)plain.weights[0][i];
            turn[i] = (double)turned.weights[0][i];
        }
        if (t == 0) continue; /* the first gradient moves nothing */
        orthogonalize(moved, rows, cols);
        for (int64_t i = 0; i < n; i++) turn[i] -= moved[i];
        assert_true(polar_norm(turn, n) < 1e-4 * polar_norm(moved, n));
    }
    free(moved);
    free(turn);
    shampoo_run_end(&plain);
    shampoo_run_end(&turned);
}

TEST(directions_are_those_of_the_optimizer_orthogonalized_with_their_norms)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        compare(optimizers[k], "precondition_frequency=2", 6, 9);
        compare(optimizers[k], "precondition_frequency=3", 9, 6);
        compare(optimizers[k], "block_size=4 precondition_frequency=2 root_delay=2", 9, 7);
        compare(optimizers[k], "normalize_grads=yes", 5, 5);
    }
    compare("kl_shampoo", "using_klsoap=yes", 6, 9);
}

/* Polar Express with 8 iterations brings all singular values to 1, so the rows of a wide matrix become orthogonal. */
TEST(polar_express_makes_rows_orthogonal)
{
    enum { ROWS = 4, COLS = 7 };

    for (int k = 0; k < OPTIMIZERS; k++) {
        run r = shampoo_run_of(optimizers[k], &(pd_shape){ 2, { ROWS, COLS } },
                               "lr=1 weight_decay=0 orthogonalize=yes polynomial=polar_express ns_steps=8", 0);
        shampoo_run_begin(&r);
        for (int t = 0; t < 3; t++) {
            memset(r.weights[0], 0, ROWS * COLS * sizeof(float));
            shampoo_run_draw(&r);
            shampoo_run_step(&r);
        }
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < i; j++) {
                double dot = 0, one = 0, other = 0;
                for (int c = 0; c < COLS; c++) {
                    double a = (double)r.weights[0][i * COLS + c], b = (double)r.weights[0][j * COLS + c];
                    dot += a * b;
                    one += a * a;
                    other += b * b;
                }
                assert_true(fabs(dot) < 1e-3 * sqrt(one * other) && fabs(one - other) < 1e-3 * one);
            }
        shampoo_run_end(&r);
    }
}

TEST(what_is_no_matrix_moves_as_without_the_option)
{
    static const pd_shape shapes[] = { { 0, { 0 } }, { 1, { 9 } }, { 3, { 3, 4, 2 } }, { 2, { 0, 4 } } };

    for (int k = 0; k < OPTIMIZERS; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            assert_true(shampoo_runs_agree(optimizers[k], &shapes[s], "lr=0.1", "lr=0.1 orthogonalize=yes", 4));
}

TEST(the_number_of_threads_does_not_change_a_bit)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        shampoo_assert_threads_agree(optimizers[k], &(pd_shape){ 2, { 300, 420 } }, "block_size=128 orthogonalize=yes",
                                     3);
        shampoo_assert_threads_agree(optimizers[k], &(pd_shape){ 2, { 90, 40 } },
                                     "orthogonalize=yes hyperball=yes polynomial=polar_express", 4);
    }
}

/* With hyperball the step turns the matrix by lr, whatever the length of the direction is. */
TEST(hyperball_turns_by_the_orthogonalized_direction)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        run r =
            shampoo_run_of(optimizers[k], &(pd_shape){ 2, { 12, 8 } }, "lr=0.01 hyperball=yes orthogonalize=yes", 0);
        float before[96];
        double norm = 0, moved = 0;
        shampoo_run_begin(&r);
        for (int t = 0; t < 3; t++) {
            memcpy(before, r.weights[0], sizeof before);
            shampoo_run_draw(&r);
            shampoo_run_step(&r);
        }
        for (int i = 0; i < 96; i++) {
            double by = (double)r.weights[0][i] - (double)before[i];
            norm += (double)before[i] * (double)before[i];
            moved += by * by;
        }
        assert_true(sqrt(moved / norm) > 0.008 && sqrt(moved / norm) < 0.011);
        shampoo_run_end(&r);
    }
}

TEST(zeros_and_gradients_of_any_size_leave_weights_finite)
{
    static const float sizes[] = { 0, 1e-30f, 1e9f };

    for (int k = 0; k < OPTIMIZERS; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            run r = shampoo_run_of(optimizers[k], &(pd_shape){ 2, { 6, 5 } }, "lr=0.1 orthogonalize=yes", 0);
            shampoo_run_begin(&r);
            for (int t = 0; t < 12; t++) {
                shampoo_fill(r.gradient[0], 30, sizes[s]);
                shampoo_run_step(&r);
                assert_true(shampoo_all_finite(r.weights[0], 30));
            }
            shampoo_run_end(&r);
        }
}

/* A matrix of 300 x 420: 5 iterations take 3 * 300 * 300 * 420 + 300^3 operations each. */
TEST(the_plan_tells_the_work_and_that_rows_stay_together)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        pd_plan plain, plan;
        pd_declaration declaration = { .name = "w", .shape = { 2, { 300, 420 } } };
        declaration.hypers = shampoo_hypers(optimizers[k], "block_size=64");
        assert_int_equal(pd_plan_make(&plain, &declaration, NULL, NULL), PD_OK);
        assert_true(declaration.hypers.row->grain(&plain) > 0);
        declaration.hypers = shampoo_hypers(optimizers[k], "block_size=64 orthogonalize=yes");
        assert_int_equal(pd_plan_make(&plan, &declaration, NULL, NULL), PD_OK);
        assert_true(plan.flops - plain.flops == 5 * (3.0 * 300 * 300 * 420 + 300.0 * 300 * 300));
        assert_int_equal(declaration.hypers.row->grain(&plan), 0);
        pd_plan_free(&plain);
        pd_plan_free(&plan);
    }
}
