/* Tests products that are so large that they are cut into stripes: they are right, and a step that has them has the
 * same bits on any number of threads. */
#include "test.h"
#include "block_products.h"
#include "kron_factor.h"
#include "lone_step.h"
#include "shampoos.h"
#include "plan_make.h"
#include "trsm.h"

static float *random_floats(int64_t n)
{
    float *at = malloc((size_t)n * sizeof *at);

    assert_non_null(at);
    shampoo_fill(at, n, 1);
    return at;
}

static double squares(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Compares some elements of the statistics of a matrix with sums in float64. */
static void check_statistic(const pd_block_view *view, int dim)
{
    int64_t m = view->size[0], n = view->size[1], side = view->size[dim], step = dim == 0 ? n : 1;
    float *S = random_floats(side * side), *before = malloc((size_t)(side * side) * sizeof *before);

    assert_non_null(before);
    memcpy(before, S, (size_t)(side * side) * sizeof *S);
    pd_block_gram(pd_mat_dense(S, side, side), 0.5f, 0.25f, view, dim);
    for (int k = 0; k < 200; k++) {
        int64_t i = shampoo_below(side), j = shampoo_below(side);
        double sum = 0, expected = (double)before[i * side + j];
        for (int64_t r = 0; r < m * n / side; r++) {
            const float *x = view->at + (dim == 0 ? r : r * n);
            sum += (double)x[i * step] * (double)x[j * step];
        }
        if (i >= j) expected = 0.5 * expected + 0.25 * sum;
        assert_true(fabs((double)S[i * side + j] - expected) < 1e-3);
    }
    free(before);
    free(S);
}

/* Compares some elements of P0' V P1 with sums in float64, and the sum of squares with that of all elements. */
static void check_contraction(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view)
{
    int64_t m = view->size[0], n = view->size[1];
    float *P[2] = { random_floats(m * m), random_floats(n * n) }, *V = random_floats(m * n),
          *scratch = random_floats(pd_block_contract_scratch(shape, block));
    double sum;

    memcpy(V, view->at, (size_t)(m * n) * sizeof *V);
    sum = pd_block_contract(whole, shape, block, view, P, scratch, squares);
    assert_true(sum == squares(whole, m * n));
    for (int k = 0; k < 20; k++) {
        int64_t i = shampoo_below(m), j = shampoo_below(n);
        double expected = 0;
        for (int64_t a = 0; a < m; a++) {
            double row = 0;
            for (int64_t b = 0; b < n; b++) row += (double)V[a * n + b] * (double)P[1][b * n + j];
            expected += (double)P[0][a * m + i] * row;
        }
        assert_true(fabs((double)whole[i * n + j] - expected) < 1e-5 * sqrt((double)(m * n)));
    }
    free(P[0]), free(P[1]), free(V), free(scratch);
}

TEST(statistics_and_directions_of_a_large_matrix_are_sums_over_elements)
{
    static const pd_shape shapes[] = { { 2, { 1600, 1024 } }, { 2, { 1024, 1600 } } };

    shampoo_seed(1);
    for (int k = 0; k < 2; k++) {
        float *whole = random_floats(1600 * 1024);
        pd_block block = pd_partition_block(&shapes[k], 0, 0);
        pd_block_view view = pd_block_look(whole, &shapes[k], &block, NULL);
        assert_true(pd_block_is_large(&block, 2));
        check_statistic(&view, 0);
        check_statistic(&view, 1);
        check_contraction(whole, &shapes[k], &block, &view); /* in place: the direction overwrites the gradient */
        free(whole);
    }
}

/* Returns a triangular matrix with zeros below its diagonal. Its inverse is not much larger than the matrix. */
static float *random_triangle(int64_t n)
{
    float *at = random_floats(n * n);

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) at[i * n + j] = j < i ? 0 : j == i ? 1.5f : at[i * n + j] / (float)n;
    return at;
}

static void assert_near(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (fabsf(a[i] - b[i]) > 1e-4f) fail_msg("element %lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

TEST(operations_with_a_large_factor_are_those_of_blas)
{
    enum { ROWS = 2000, COLS = 600 };
    float *Q = random_triangle(ROWS), *x = random_floats(ROWS * COLS), *y = malloc(sizeof(float[ROWS * COLS]));
    pd_block_view view = { .at = x, .rank = 2, .size = { ROWS, COLS }, .stride = COLS },
                  turned = { .at = x, .rank = 2, .size = { COLS, ROWS }, .stride = ROWS };

    assert_non_null(y);
    memcpy(y, x, sizeof(float[ROWS * COLS]));
    pd_kron_along(&view, 0, Q, false, ROWS, PD_KRON_APPLY);
    pd_trmm(pd_mat_dense(y, ROWS, COLS), pd_mat_dense(Q, ROWS, ROWS), PD_AS_IS, PD_LEFT);
    assert_near(x, y, ROWS * COLS);
    pd_kron_along(&turned, 1, Q, false, ROWS, PD_KRON_SOLVE_TRANSPOSED);
    pd_trsm(pd_mat_dense(y, COLS, ROWS), pd_mat_dense(Q, ROWS, ROWS), PD_AS_IS, PD_RIGHT);
    assert_near(x, y, ROWS * COLS);
    free(Q), free(x), free(y);
}

/* Preconditions matrices in a larger one with and without work memory: with it, products are cut along the dimension of
 * the factor. */
TEST(a_large_block_is_preconditioned_alike_with_and_without_work_memory)
{
    enum { LONG = 2000, SHORT = 560, GAP = 16 };
    float *Q[2] = { random_triangle(LONG), random_triangle(SHORT) }, *turned[2] = { Q[1], Q[0] };

    for (int way = 0; way < 2; way++) {
        int64_t m = way == 0 ? LONG : SHORT, n = way == 0 ? SHORT : LONG, stride = n + GAP;
        pd_kron_block block = { .rank = 2, .size = { m, n }, .full = { m, n }, .side = { m, n } };
        float *x = random_floats(m * stride), *y = random_floats(m * stride), *other = random_floats(m * stride);
        pd_block_view view = { .at = x, .rank = 2, .size = { m, n }, .stride = stride }, plain = view;
        memcpy(y, x, (size_t)(m * stride) * sizeof *x);
        plain.at = y;
        pd_kron_precondition(&block, &view, way == 0 ? Q : turned, other);
        pd_kron_precondition(&block, &plain, way == 0 ? Q : turned, NULL);
        assert_true(memcmp(x, y, (size_t)(m * stride) * sizeof *x) != 0); /* other stripes have other bits */
        assert_near(x, y, m * stride);
        free(x), free(y), free(other);
    }
    free(Q[0]), free(Q[1]);
}

TEST(large_factors_are_multiplied_as_triangles)
{
    enum { SIDE = 1900 };
    float *Q = random_triangle(SIDE), *M = random_triangle(SIDE), *P = malloc(sizeof(float[SIDE * SIDE]));
    pd_kron_block block = { .rank = 1, .size = { SIDE }, .full = { SIDE }, .side = { SIDE } };

    assert_non_null(P);
    assert_true(pd_kron_is_large(&block));
    memcpy(P, Q, sizeof(float[SIDE * SIDE]));
    pd_kron_multiply(&block, &Q, &M, false);
    pd_trmm_upper(pd_mat_dense(P, SIDE, SIDE), pd_mat_dense(M, SIDE, SIDE));
    assert_near(Q, P, SIDE * SIDE);
    free(Q), free(M), free(P);
}

#if defined __SANITIZE_ADDRESS__
static const int thread_counts[] = { 3 }; /* few cases, since sanitizers are slow */
#else
static const int thread_counts[] = { 2, 3, 5 };
#endif

typedef struct param {
    const char *row, *hypers;
    pd_shape shape;
    int64_t start; /* count of steps before the first one of the test */
    int steps;
} param;

static pd_optim *new_optim(const param *p)
{
    pd_declaration declaration = { .name = "w", .shape = p->shape, .hypers = shampoo_hypers(p->row, p->hypers) };
    double stats[PD_MAX_MODEL_STATS];
    pd_optim *optim;

    pd_model_stats_of(declaration.hypers.row, &declaration, 1, stats);
    assert_int_equal(pd_optim_new(&optim, &declaration, stats, NULL), PD_OK);
    pd_optim_set_count(optim, p->start);
    return optim;
}

/* Fills the outputs of all tasks with random numbers, where steps use them without a task. */
static void fill_roots(const pd_optim *optim)
{
    const pd_plan *plan = pd_optim_plan(optim);

    for (size_t t = 0; t < plan->n_tasks; t++) {
        int slot = plan->tasks[t].output[0];
        pd_tensor root = pd_optim_slot(optim, (size_t)slot);
        if (root.at != NULL) shampoo_fill(root.at, pd_slot_elements(&plan->slots[slot]), 0.1f);
    }
}

/* Returns the weights and the whole state behind them, after some steps on `threads` threads. */
static float *run(const param *p, int threads, int64_t *n)
{
    pd_optim *optim = new_optim(p);
    const pd_plan *plan = pd_optim_plan(optim);
    int64_t elements = pd_optim_elements(optim);
    float *gradient = malloc((size_t)elements * sizeof *gradient), *all;

    *n = elements;
    for (size_t i = 0; i < plan->n_slots; i++) *n += plan->slots[i].temporary ? 0 : pd_slot_elements(&plan->slots[i]);
    all = calloc((size_t)*n, sizeof *all);
    assert_true(gradient != NULL && all != NULL);
    shampoo_seed(3);
    if (p->start > 0) fill_roots(optim);
    for (int step = 0; step < p->steps; step++) {
        shampoo_fill(gradient, elements, 1);
        lone_step(optim, &(pd_step_io){ .gradient = gradient, .before = all, .after = all }, threads);
    }
    for (size_t i = 0, at = (size_t)elements; i < plan->n_slots; i++) {
        if (plan->slots[i].temporary) continue;
        pd_optim_read_slot(optim, i, all + at);
        at += (size_t)pd_slot_elements(&plan->slots[i]);
    }
    free(gradient);
    pd_optim_free(optim);
    return all;
}

static void threads_agree(const param *p, bool large)
{
    int64_t n, again_n;
    pd_optim *optim = new_optim(p);
    float *one, *again;

    assert_true(pd_optim_plan(optim)->large_products == large);
    pd_optim_free(optim);
    one = run(p, 1, &n);
    assert_true(shampoo_all_finite(one, n));
    for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
        again = run(p, thread_counts[t], &again_n);
        assert_int_equal(again_n, n);
        assert_memory_equal(again, one, (size_t)n * sizeof *one);
        free(again);
    }
    free(one);
}

#define NO_ROOTS 1000000001

TEST(a_large_block_of_scalable_shampoo_is_the_same_on_any_threads)
{
    static const char *const hypers = "block_size=0 preconditioning_compute_steps=1000000000";

    threads_agree(&(param){ "scalable_shampoo", hypers, { 2, { 1024, 600 } }, NO_ROOTS, 1 }, false);
    threads_agree(&(param){ "scalable_shampoo", hypers, { 2, { 1600, 1024 } }, NO_ROOTS, 1 }, true);
    threads_agree(&(param){ "scalable_shampoo", hypers, { 3, { 24, 1300, 64 } }, NO_ROOTS, 1 }, true);
    threads_agree(
        &(param){ "scalable_shampoo",
                  "block_size=0 preconditioning_compute_steps=1000000000 best_effort_memory_usage_reduction=1",
                  { 2, { 1152, 1024 } },
                  NO_ROOTS,
                  1 },
        true);
}

TEST(a_large_block_of_shampoo_is_the_same_on_any_threads)
{
    static const char *const hypers = "max_preconditioner_dim=5000 precondition_frequency=1000000000 betas=0.9,0.999 "
                                      "use_merge_dims=no grafting_config=Adam";

    threads_agree(&(param){ "shampoo", hypers, { 2, { 600, 1024 } }, NO_ROOTS, 1 }, false);
    threads_agree(&(param){ "shampoo", hypers, { 2, { 1024, 1600 } }, NO_ROOTS, 1 }, true);
    threads_agree(&(param){ "shampoo", hypers, { 3, { 1536, 16, 48 } }, NO_ROOTS, 1 }, true);
}

TEST(a_large_block_of_kron_is_the_same_on_any_threads)
{
    static const char *const hypers =
        "partition_grads_into_blocks=no preconditioner_update_probability=1 merge_small_dims=no";

    threads_agree(&(param){ "kron", hypers, { 2, { 1024, 512 } }, 0, 1 }, false);
    threads_agree(&(param){ "kron", hypers, { 2, { 1904, 640 } }, 0, 2 }, true);
    threads_agree(&(param){ "kron", hypers, { 3, { 12, 1400, 100 } }, 0, 1 }, true);
}

TEST(a_large_block_of_kron_s_newer_updates_is_the_same_on_any_threads)
{
    threads_agree(
        &(param){ "kron", "dQ=QUAD partition_grads_into_blocks=no merge_small_dims=no", { 2, { 1024, 512 } }, 0, 1 },
        false);
    threads_agree(&(param){ "kron",
                            "dQ=Q0.5EQ1.5 partition_grads_into_blocks=no merge_small_dims=no "
                            "preconditioner_max_skew=1e9",
                            { 2, { 1904, 640 } },
                            0,
                            1 },
                  true);
    threads_agree(
        &(param){ "kron", "dQ=QEP partition_grads_into_blocks=no merge_small_dims=no", { 2, { 1024, 1040 } }, 0, 1 },
        true);
}
