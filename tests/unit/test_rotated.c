/* Tests the optimizers that work in eigenbases, soap and kl_shampoo, beyond what recorded runs show: blocks, late
 * bases, shapes without factors, storage types, threads. */
#include "test.h"
#include "lone_step.h"
#include "optimizer.h"
#include "optimizer_ops.h"
#include "plan_make.h"
#include "save.h"
#include "shampoos.h"

static const char *const optimizers[] = { "soap", "kl_shampoo" };
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static void plan_of(pd_plan *plan, const char *optimizer, pd_shape shape, const char *hypers)
{
    pd_declaration declaration = { .name = "w", .shape = shape, .hypers = shampoo_hypers(optimizer, hypers) };
    pd_error err = { 0 };

    if (pd_plan_make(plan, &declaration, NULL, &err) != PD_OK) fail_msg("%s", err.text);
}

TEST(a_first_gradient_moves_no_weight)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        shampoo_run r = shampoo_run_of(optimizers[k], &(pd_shape){ 2, { 6, 5 } }, "lr=0.1", 2);
        float before[30];
        shampoo_run_begin(&r);
        memcpy(before, r.weights[0], sizeof before);
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        assert_memory_equal(before, r.weights[0], sizeof before);
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        for (int i = 0; i < 30; i++) assert_true(before[i] != r.weights[0][i]);
        shampoo_run_end(&r);
    }
}

/* Trains a matrix of 6 x 10 in four blocks, and the same four blocks as parameters of their own. */
static void compare_blocks(const char *optimizer, const char *hypers)
{
    enum { ROWS = 6, COLS = 10, STEPS = 12 };
    static const struct {
        int row, col, rows, cols;
    } block[4] = { { 0, 0, 4, 4 }, { 0, 4, 4, 4 }, { 0, 8, 4, 2 }, { 4, 0, 2, 4 } };
    char list[200];
    pd_declaration whole = { .name = "w", .shape = { 2, { ROWS, COLS } } }, part[4];
    pd_model *one, *four;
    float W[ROWS * COLS], G[ROWS * COLS], w[4][16], g[4][16];
    pd_step_io io[4];

    snprintf(list, sizeof list, "%s block_size=4", hypers);
    whole.hypers = shampoo_hypers(optimizer, list);
    for (int b = 0; b < 4; b++)
        part[b] = (pd_declaration){ .name = "w",
                                    .shape = { 2, { block[b].rows, block[b].cols } },
                                    .hypers = shampoo_hypers(optimizer, hypers) };
    one = shampoo_model(&whole, 1, 1), four = shampoo_model(part, 4, 1);
    shampoo_seed(7);
    shampoo_fill(W, ROWS * COLS, 1);
    for (int step = 0; step <= STEPS; step++) {
        for (int b = 0; b < 4; b++) {
            int n = block[b].cols;
            for (int i = 0; i < block[b].rows * n; i++) {
                int at = (block[b].row + i / n) * COLS + block[b].col + i % n;
                if (step == 0)
                    w[b][i] = W[at];
                else
                    assert_true(w[b][i] == W[at]);
            }
        }
        shampoo_fill(G, ROWS * COLS, 1);
        shampoo_step_one(one, G, W);
        for (int b = 0; b < 4; b++) {
            int n = block[b].cols;
            for (int i = 0; i < block[b].rows * n; i++)
                g[b][i] = G[(block[b].row + i / n) * COLS + block[b].col + i % n];
            io[b] = (pd_step_io){ .gradient = g[b], .before = w[b], .after = w[b] };
        }
        assert_int_equal(pd_model_step(four, io, NULL), PD_OK);
    }
    pd_model_free(one), pd_model_free(four);
}

TEST(blocks_train_like_parameters_of_their_own)
{
    compare_blocks("soap", "lr=0.1 precondition_frequency=3");
    compare_blocks("soap", "lr=0.1 precondition_frequency=4 root_delay=3");
    compare_blocks("kl_shampoo", "lr=0.1 precondition_frequency=3");
    compare_blocks("kl_shampoo", "lr=0.1 precondition_frequency=3 using_klsoap=yes root_delay=2");
}

/* The weights of adam and soap differ only by the skipped first gradient, if there are no factors and no decay. */
TEST(soap_without_factors_is_adam_without_the_first_gradient)
{
    enum { N = 24 };
    static const pd_shape shapes[] = { { 1, { N } }, { 2, { 4, 6 } } };
    const char *lists[] = { "lr=0.1 weight_decay=0", "lr=0.1 weight_decay=0 max_precond_dim=3" };

    for (int k = 0; k < 2; k++) {
        pd_declaration soap = { .name = "w", .shape = shapes[k], .hypers = shampoo_hypers("soap", lists[k]) }, adam = {
            .name = "w", .shape = shapes[k], .hypers = shampoo_hypers("adam", "lr=0.1 betas=(0.95,0.95)")
        };
        pd_model *a = shampoo_model(&soap, 1, 1), *b = shampoo_model(&adam, 1, 1);
        float x[N], y[N], g[N];
        double wide[N];
        shampoo_seed(3);
        shampoo_fill(x, N, 1);
        memcpy(y, x, sizeof x);
        for (int step = 0; step < 15; step++) {
            shampoo_fill(g, N, 1);
            shampoo_step_one(a, g, x);
            if (step > 0) shampoo_step_one(b, g, y);
        }
        for (int i = 0; i < N; i++) wide[i] = (double)y[i];
        assert_true(shampoo_difference(x, wide, N) < 1e-5);
        pd_model_free(a), pd_model_free(b);
    }
}

/* A basis that is adopted late turns the average of the gradient: it stays the same average in plain coordinates. */
TEST(an_adopted_basis_keeps_the_average_of_the_gradient)
{
    enum { M = 5, N = 3, SIZE = M * N };
    shampoo_run r = shampoo_run_of("soap", &(pd_shape){ 2, { M, N } },
                                   "lr=0.01 betas=(0.9,0.95) precondition_frequency=3 root_delay=2", 20);
    double plain[SIZE] = { 0 };

    shampoo_run_begin(&r);
    for (int step = 0; step < 20; step++) {
        float *average, *P, *Q;
        shampoo_run_draw(&r);
        shampoo_run_step(&r);
        for (int i = 0; step > 0 && i < SIZE; i++) plain[i] = 0.9 * plain[i] + 0.1 * (double)r.gradient[0][i];
        average = shampoo_slot(&r, "exp_avg", -1, -1, SIZE);
        P = shampoo_slot(&r, "Q", 0, -1, M * M), Q = shampoo_slot(&r, "Q", 1, -1, N * N);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int a = 0; a < M; a++)
                    for (int b = 0; b < N; b++)
                        sum += (double)P[i * M + a] * (double)average[a * N + b] * (double)Q[j * N + b];
                assert_true(fabs(sum - plain[i * N + j]) < 1e-5);
            }
        free(average), free(P), free(Q);
    }
    shampoo_run_end(&r);
}

TEST(threads_agree_bit_for_bit)
{
    static const pd_shape shape = { 3, { 12, 20, 9 } };

    for (int k = 0; k < OPTIMIZERS; k++) {
        shampoo_assert_threads_agree(optimizers[k], &shape, "lr=0.1 block_size=7 precondition_frequency=3", 12);
        shampoo_assert_threads_agree(optimizers[k], &shape, "lr=0.1 normalize_grads=yes precondition_frequency=2", 8);
    }
    shampoo_assert_threads_agree("kl_shampoo", &shape, "lr=0.1 using_klsoap=yes precondition_frequency=2", 8);
}

/* Stripes of one block are computed by several threads, in a step and in the adoption of a basis. */
TEST(threads_agree_on_a_large_block)
{
    static const pd_shape shape = { 2, { 1100, 1030 } };
    pd_plan plan;

    plan_of(&plan, "soap", shape, "");
    assert_true(plan.large_products && plan.n_blocks == 1);
    pd_plan_free(&plan);
    shampoo_assert_threads_agree("soap", &shape, "lr=0.1 max_precond_dim=1050 precondition_frequency=2", 2);
}

TEST(state_in_bfloat16_trains)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        shampoo_run r = shampoo_run_of(optimizers[k], &(pd_shape){ 2, { 20, 12 } },
                                       "lr=0.01 precondition_frequency=2 exp_avg_dtype=bfloat16 factor_dtype=bfloat16 "
                                       "basis_dtype=bfloat16",
                                       0);
        shampoo_run_moves(&r, 12);
    }
}

TEST(plans_have_factors_where_upstream_has_them)
{
    pd_plan plan;

    plan_of(&plan, "soap", (pd_shape){ 2, { 40, 6 } }, "max_precond_dim=10");
    assert_int_equal(plan.n_tasks, 1);
    assert_int_equal(plan.tasks[0].n_inputs, 2);
    assert_string_equal(plan.slots[plan.tasks[0].input[0]].name, "GG");
    assert_int_equal(plan.slots[plan.tasks[0].input[0]].number, 1);
    pd_plan_free(&plan);
    plan_of(&plan, "soap", (pd_shape){ 1, { 12 } }, "");
    assert_int_equal(plan.n_tasks, 0);
    pd_plan_free(&plan);
    plan_of(&plan, "soap", (pd_shape){ 1, { 12 } }, "precondition_1d=yes");
    assert_int_equal(plan.n_tasks, 1);
    pd_plan_free(&plan);
    plan_of(&plan, "soap", (pd_shape){ 4, { 3, 2, 2, 4 } }, "merge_dims=yes max_precond_dim=12");
    assert_int_equal(plan.shape.rank, 2);
    assert_int_equal(plan.slots[plan.tasks[0].input[0]].shape.dim[0], 12);
    pd_plan_free(&plan);
    plan_of(&plan, "kl_shampoo", (pd_shape){ 4, { 1, 8, 1, 6 } }, "");
    assert_int_equal(plan.shape.rank, 2);
    assert_int_equal(plan.n_tasks, 2); /* nothing but a basis is adopted, so each has a task of its own */
    pd_plan_free(&plan);
    plan_of(&plan, "kl_shampoo", (pd_shape){ 2, { 8, 6 } }, "using_klsoap=yes");
    assert_int_equal(plan.n_tasks, 1);
    pd_plan_free(&plan);
}

TEST(a_factor_of_an_embedding_is_noted)
{
    pd_plan plan;

    plan_of(&plan, "kl_shampoo", (pd_shape){ 2, { 12000, 4 } }, "");
    assert_non_null(strstr(plan.note, "two matrices of 12000 rows"));
    pd_plan_free(&plan);
    plan_of(&plan, "kl_shampoo", (pd_shape){ 2, { 12000, 4 } }, "block_size=1024");
    assert_string_equal(plan.note, "");
    pd_plan_free(&plan);
}

TEST(invalid_hyperparameters_are_refused)
{
    for (int k = 0; k < OPTIMIZERS; k++) {
        shampoo_assert_refused(optimizers[k], "root_delay", "0", "1 to precondition_frequency, 10, or ready");
        shampoo_assert_refused(optimizers[k], "root_delay", "11", "got 11");
        shampoo_assert_refused(optimizers[k], "shampoo_beta", "1", "below 1");
    }
}

TEST(a_late_basis_of_soap_is_warned_of)
{
    pd_hypers late = shampoo_hypers("soap", "root_delay=10"), soon = shampoo_hypers("soap", "");

    assert_non_null(late.row->warning(&late));
    assert_null(late.row->warning(&soon));
}

TEST(steps_survive_a_lack_of_memory)
{
    for (int k = 0; k < OPTIMIZERS; k++)
        shampoo_assert_steps_without_memory(optimizers[k], &(pd_shape){ 2, { 8, 6 } }, "lr=0.1", 40);
}

/* An image or an import may bring any finite numbers as the order of basis vectors. */
TEST(an_order_that_is_none_is_ignored)
{
    enum { SIDE = 4, SIZE = SIDE * SIDE };
    static const double no_stats[PD_MAX_MODEL_STATS];
    pd_declaration declaration = { .name = "w", .shape = { 2, { SIDE, SIDE } }, .hypers = shampoo_hypers("soap", "") };
    float W[SIZE] = { 0 }, G[SIZE];
    pd_step_io io = { .gradient = G, .before = W, .after = W };
    pd_optim *optim;
    double *root;
    int64_t n;

    shampoo_seed(5);
    shampoo_fill(G, SIZE, 1);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    lone_step(optim, &io, 1);
    n = pd_pending_root_length(optim, 0);
    root = calloc((size_t)n, sizeof *root);
    pd_pending_root_read(optim, 0, 0, n, root);
    pd_optim_forget_roots(optim);
    for (int i = 0; i < SIDE; i++) root[n - 1 - i] = i % 2 == 0 ? 1e9 : -3;
    assert_int_equal(pd_pending_root_check(optim, root, n, 1, NULL), PD_OK);
    assert_int_equal(pd_pending_root_write(optim, root), PD_OK);
    lone_step(optim, &io, 1);
    assert_true(W[0] != 0 && shampoo_all_finite(W, SIZE));
    free(root);
    pd_optim_free(optim);
}
