/* Tests slots in float64, with which phases and tasks compute in float64, and slots that are stored in float16. */
#include "test.h"
#include "lone_step.h"
#include "optimizer.h"
#include "partition.h"
#include "wide_row.h"

enum { ROWS = 5, COLS = 4, N = ROWS * COLS, BLOCKS = 4, SQUARE = WIDE_SIDE * WIDE_SIDE };

static const double no_stats[PD_MAX_MODEL_STATS];

static int statistics_of(int b)
{
    return WIDE_FIRST_BLOCK + 3 * b;
}

static pd_declaration declare(pd_storage storage, int delay)
{
    pd_declaration declaration = { .name = "w", .shape = { 2, { ROWS, COLS } } };

    pd_hypers_init(&declaration.hypers, &wide_row);
    declaration.hypers.value[WIDE_STORAGE] = storage;
    declaration.hypers.value[WIDE_DELAY] = delay;
    return declaration;
}

static pd_optim *new_optim(pd_storage storage, int delay)
{
    pd_declaration declaration = declare(storage, delay);
    pd_optim *optim;

    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    return optim;
}

static void fill_gradient(float *G, int step)
{
    for (int i = 0; i < N; i++) G[i] = sinf((float)(i + 1) * (float)(step + 1) * 0.7f);
}

static void step_by(pd_optim *optim, const float *G, float *W, int threads)
{
    lone_step(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W }, threads);
}

static void step(pd_optim *optim, const float *G, float *W)
{
    step_by(optim, G, W, 2);
}

typedef struct twin {
    float W[N], M32[N], d[BLOCKS][WIDE_SIDE];
    double A[N], M64[N], S[BLOCKS][SQUARE], R[BLOCKS][SQUARE];
} twin;

static void twin_new(twin *t)
{
    const pd_shape shape = { 2, { ROWS, COLS } };

    memset(t, 0, sizeof *t);
    for (int i = 0; i < N; i++) t->A[i] = 0.5;
    for (int b = 0; b < BLOCKS; b++) {
        int64_t m = pd_partition_block(&shape, WIDE_SIDE, b).size[0];
        for (int64_t i = 0; i < m; i++) t->S[b][i * m + i] = 2, t->R[b][i * m + i] = 1;
    }
}

/* Rounds the values of x as storing them in `storage` and reading them back does. */
static void settle(float *x, pd_storage storage)
{
    pd_quantized q;
    void *memory;

    if (storage == PD_STORE_F32 || storage == PD_STORE_F64) return;
    memory = aligned_alloc(64, (size_t)pd_quantized_room(storage, false, ROWS, COLS));
    q = pd_quantized_at(memory, storage, false, ROWS, COLS);
    pd_quantize(&q, x);
    pd_dequantize(x, &q);
    free(memory);
}

static void twin_block(twin *t, const float *G, int b, double *D)
{
    const pd_shape shape = { 2, { ROWS, COLS } };
    pd_block block = pd_partition_block(&shape, WIDE_SIDE, b);
    int64_t m = block.size[0], n = block.size[1];
    const float *g = G + block.start[0] * COLS + block.start[1];

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += (double)g[i * COLS + k] * (double)g[j * COLS + k];
            t->S[b][i * m + j] = t->S[b][i * m + j] / 2 + sum;
        }
    for (int64_t i = 0; i < m * m; i++) t->R[b][i] = 1 / (1 + fabs(t->S[b][i]));
    for (int64_t i = 0; i < m; i++) t->d[b][i] = (float)t->R[b][i * m + i];
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t j = 0; j < m; j++) sum += t->R[b][i * m + j] * (double)g[j * COLS + k];
            D[(block.start[0] + i) * COLS + block.start[1] + k] = sum;
        }
}

static void twin_step(twin *t, const float *G, pd_storage storage)
{
    double D[N];

    for (int b = 0; b < BLOCKS; b++) twin_block(t, G, b, D);
    for (int i = 0; i < N; i++) {
        t->A[i] = t->A[i] / 2 + D[i];
        t->M64[i] = t->M64[i] / 2 + D[i];
        t->M32[i] = t->M32[i] / 2 + (float)D[i];
        t->W[i] = (float)((double)t->W[i] - (t->A[i] + (storage == PD_STORE_F64 ? t->M64[i] : (double)t->M32[i])) / 8);
    }
    settle(t->M32, storage);
}

/* Checks that a slot, or its part for a block, is read as the n numbers of `expected`. */
static void assert_wide(const pd_optim *optim, const char *name, int number, int block, const double *expected,
                        int64_t n)
{
    double values[N] = { 0 };
    pd_part part;

    assert_true(pd_plan_part(pd_optim_plan(optim), name, number, block, &part));
    pd_optim_read_part(optim, &part, values);
    assert_memory_equal(values, expected, (size_t)n * sizeof *values);
}

static void assert_state(const pd_optim *optim, const twin *t, pd_storage storage)
{
    const pd_plan *plan = pd_optim_plan(optim);
    double M[N];

    for (int i = 0; i < N; i++) M[i] = storage == PD_STORE_F64 ? t->M64[i] : (double)t->M32[i];
    assert_wide(optim, "momentum", -1, -1, M, N);
    assert_wide(optim, "average", -1, -1, t->A, N);
    for (int b = 0; b < BLOCKS; b++) {
        int64_t m = plan->blocks[b].size[0];
        double d[WIDE_SIDE];
        for (int64_t i = 0; i < m; i++) d[i] = (double)t->d[b][i];
        assert_wide(optim, "statistics", 0, b, t->S[b], m * m);
        assert_wide(optim, "root", 0, b, t->R[b], m * m);
        assert_wide(optim, "short", -1, b, d, m);
    }
}

TEST(phases_and_tasks_see_doubles_and_float16_is_rounded)
{
    static const pd_storage storages[] = { PD_STORE_F32, PD_STORE_BF16, PD_STORE_INT8, PD_STORE_F16, PD_STORE_F64 };

    for (size_t k = 0; k < sizeof storages / sizeof *storages; k++) {
        pd_optim *optim = new_optim(storages[k], 0);
        float W[N] = { 0 }, G[N];
        twin t;
        twin_new(&t);
        for (int s = 0; s < 6; s++) {
            fill_gradient(G, s);
            step(optim, G, W);
            twin_step(&t, G, storages[k]);
            assert_memory_equal(W, t.W, sizeof W);
            assert_state(optim, &t, storages[k]);
        }
        pd_optim_free(optim);
    }
}

TEST(float64_state_begins_as_the_plan_says)
{
    pd_optim *optim = new_optim(PD_STORE_F64, 0);
    twin t;

    twin_new(&t);
    assert_state(optim, &t, PD_STORE_F64);
    pd_optim_free(optim);
}

TEST(a_slot_is_read_in_float32_with_both_halves)
{
    pd_optim *optim = new_optim(PD_STORE_F64, 0);
    float W[N] = { 0 }, G[N], S[SQUARE];
    twin t;

    twin_new(&t);
    fill_gradient(G, 0);
    step(optim, G, W);
    twin_step(&t, G, PD_STORE_F64);
    pd_optim_read_slot(optim, (size_t)statistics_of(1), S);
    assert_true(S[1] != 0 && (double)S[1] != t.S[1][1]); /* rounded */
    for (int i = 0; i < SQUARE; i++) assert_true(S[i] == (float)t.S[1][i]);
    pd_optim_free(optim);
}

TEST(bits_do_not_depend_on_the_number_of_threads)
{
    float W[4][N] = { { 0 } }, G[N];

    for (int threads = 1; threads <= 4; threads++) {
        pd_optim *optim = new_optim(PD_STORE_F64, 1);
        for (int s = 0; s < 5; s++) {
            fill_gradient(G, s);
            step_by(optim, G, W[threads - 1], threads);
        }
        pd_optim_free(optim);
        assert_memory_equal(W[threads - 1], W[0], sizeof W[0]);
    }
}

/* The square of 1e20 is beyond float32, but not beyond float64. */
TEST(statistics_beyond_float32_are_finite)
{
    pd_optim *optim = new_optim(PD_STORE_F64, 0);
    float W[N] = { 0 }, G[N];

    fill_gradient(G, 0);
    G[1 * COLS] = 1e20f; /* not element 0: there the task would fail */
    step(optim, G, W);
    assert_int_equal(pd_optim_root(optim, 0).failed, 0);
    assert_int_equal(pd_optim_root(optim, 0).adopted, 1);
    pd_optim_free(optim);
}

static float unfit_of(const pd_optim *optim, int block)
{
    return pd_optim_slot(optim, WIDE_UNFIT).at[block];
}

TEST(a_task_is_told_why_its_inputs_are_unfit)
{
    pd_optim *optim = new_optim(PD_STORE_F64, 0);
    float W[N] = { 0 }, G[N] = { 0 };

    G[0] = 2e19f;    /* too large: the task of block 0 fails */
    G[3] = INFINITY; /* 0 * inf makes the rest of block 1's statistic NaN */
    G[3 * COLS] = NAN;
    step(optim, G, W);
    assert_true(unfit_of(optim, 0) == PD_FIT);
    assert_int_equal(pd_optim_root(optim, 0).failed, 1);
    assert_true(unfit_of(optim, 1) == PD_UNFIT_NAN); /* infinite and NaN elements: reported as NaN */
    assert_true(unfit_of(optim, 2) == PD_UNFIT_NAN);
    assert_true(unfit_of(optim, 3) == PD_FIT);
    assert_int_equal(pd_optim_root(optim, 3).adopted, 1);
    pd_optim_free(optim);
}

TEST(an_infinity_alone_is_told_as_one)
{
    pd_optim *optim = new_optim(PD_STORE_F64, 0);
    float W[N] = { 0 }, G[N];

    for (int i = 0; i < N; i++) G[i] = 1;
    G[COLS + 1] = INFINITY;
    step(optim, G, W);
    assert_true(unfit_of(optim, 0) == PD_UNFIT_INF);
    assert_true(isnan(pd_optim_root(optim, 0).error));
    pd_optim_free(optim);
}

TEST(a_float64_takes_eight_bytes_and_a_float16_two)
{
    int64_t squares = 9 + 9 + 4 + 4, sides = 3 + 3 + 2 + 2, blocks = 8 * 2 * squares + 4 * sides + 4 * BLOCKS;
    pd_optim *wide = new_optim(PD_STORE_F64, 0), *narrow = new_optim(PD_STORE_F16, 0);

    assert_int_equal(pd_optim_state_bytes(wide), 8 * N + 8 * N + blocks);
    assert_int_equal(pd_optim_state_bytes(narrow), 2 * N + 8 * N + blocks);
    assert_int_equal(pd_plan_task_bytes(pd_optim_plan(wide)), 8 * 2 * squares + 4 * sides);
    assert_int_equal(pd_plan_step_bytes(pd_optim_plan(wide)), 8 * N);
    assert_int_equal(pd_plan_step_bytes(pd_optim_plan(narrow)), 8 * N + 4 * N);
    pd_optim_free(wide);
    pd_optim_free(narrow);
}

TEST(without_memory_there_is_no_optimizer_and_no_step)
{
    pd_declaration declaration = declare(PD_STORE_F16, 0);
    float W[N] = { 0 }, G[N];
    pd_optim *optim = NULL;
    int rc;

    fill_gradient(G, 0);
    for (int64_t n = 0;; n++) {
        oom_arm(n);
        rc = pd_optim_new(&optim, &declaration, no_stats, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    assert_int_equal(rc, PD_OK);
    oom_arm(0);
    rc = pd_optim_begin(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W });
    oom_disarm();
    assert_int_equal(rc, PD_NO_MEMORY);
    step(optim, G, W);
    assert_int_equal(pd_optim_count(optim), 1);
    pd_optim_free(optim);
}
