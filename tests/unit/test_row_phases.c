/* Tests the phases of an optimizer: tasks whose inputs are copied before one phase and whose roots are used from
 * another phase on, and matrices that threads share in stripes of rows. */
#include "test.h"
#include "batch.h"
#include "lone_step.h"
#include "optimizer.h"
#include "split_row.h"
#include "striped_row.h"

enum { N = 20, STEPS = 9, ROWS = 5, COLS = 7 };

static const double no_stats[PD_MAX_MODEL_STATS];

static pd_optim *new_optim(const pd_optimizer_ops *row, pd_shape shape, int hyper)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, row);
    declaration.hypers.value[0] = hyper;
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    return optim;
}

static void fill(float *G, int n, int step)
{
    for (int i = 0; i < n; i++) G[i] = sinf((float)(i + 1) * (float)(step + 1) * 0.7f);
}

typedef struct twin {
    float W[N], S[N], R[N], root[STEPS + 1][N]; /* root[c]: computed from the statistics of step c */
} twin;

static void capture(twin *t, int c)
{
    float sum = 0;

    for (int i = 0; i < N; i++) sum += t->S[i];
    for (int i = 0; i < N; i++) t->root[c][i] = 1 / (1 + t->S[i] + sum / (float)N);
}

static void adopt(twin *t, int from)
{
    if (from >= 1) memcpy(t->R, t->root[from], sizeof t->R);
}

static void twin_step(twin *t, const float *G, int c, int delay, bool after)
{
    if (after) adopt(t, c - delay);
    for (int i = 0; i < N; i++) t->S[i] = t->S[i] / 2 + G[i] * G[i];
    if (!after) capture(t, c);
    for (int i = 0; i < N; i++) t->S[i] += 1;
    if (!after) adopt(t, c - delay);
    for (int i = 0; i < N; i++) t->W[i] -= G[i] * t->R[i];
    if (after) capture(t, c);
}

static void follows_twin(bool after, int root_delay, int delay, int threads)
{
    pd_optim *optim = new_optim(after ? &split_after : &split_between, (pd_shape){ 1, { N } }, root_delay);
    twin t = { .S = { 0 } };
    float G[N], W[N] = { 0 };

    for (int i = 0; i < N; i++) t.R[i] = 1;
    for (int c = 1; c <= STEPS; c++) {
        fill(G, N, c);
        lone_step(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W }, threads);
        twin_step(&t, G, c, delay, after);
        assert_memory_equal(W, t.W, sizeof W);
    }
    pd_optim_free(optim);
}

TEST(roots_captured_before_a_phase_are_adopted_before_another)
{
    for (int threads = 1; threads <= 5; threads += 2)
        for (int delay = 0; delay <= 3; delay++) follows_twin(false, delay, delay, threads);
}

TEST(a_refresh_after_the_move_is_adopted_before_a_later_step)
{
    for (int threads = 1; threads <= 5; threads += 2)
        for (int delay = 1; delay <= 3; delay++) follows_twin(true, delay, delay, threads);
}

/* lone_step delivers each task when the batch stops. That is too late for the step of the task, and in time for the
 * next step. */
TEST(roots_that_are_ready_are_adopted_at_the_adopt_phase)
{
    follows_twin(false, PD_ROOT_READY, 1, 2);
    follows_twin(true, PD_ROOT_READY, 1, 2);
}

TEST(a_refresh_after_the_move_overlaps_the_time_between_steps)
{
    pd_optim *optim = new_optim(&split_after, (pd_shape){ 1, { N } }, 1);
    float G[N], W[N] = { 0 }, S[N];
    pd_step_io io = { .gradient = G, .before = W, .after = W };
    pd_task *task;

    fill(G, N, 1);
    assert_int_equal(pd_optim_begin(optim, &io), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
    assert_true(pd_optim_done(optim)); /* weights are complete, the task has not run */
    task = pd_optim_capture(optim);
    assert_non_null(task);
    memcpy(S, pd_optim_slot(optim, SPLIT_STATISTICS).at, sizeof S);
    assert_int_equal(pd_optim_begin(optim, &io), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
    assert_true(pd_optim_waits(optim)); /* the step waits before its first phase */
    assert_memory_equal(pd_optim_slot(optim, SPLIT_STATISTICS).at, S, sizeof S);
    pd_task_run(task);
    pd_optim_deliver(optim, task);
    assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
    assert_true(pd_optim_done(optim));
    pd_optim_free(optim);
}

static void product(float *to, const float *A, const float *B, int rows, int inner, int cols, bool turned)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float sum = 0;
            for (int k = 0; k < inner; k++) sum += A[i * inner + k] * (turned ? B[j * inner + k] : B[k * cols + j]);
            to[i * cols + j] = sum;
        }
}

static void striped_twin(float *W, const float *G)
{
    float X[ROWS * COLS], next[ROWS * COLS], A[ROWS * ROWS], B[ROWS * ROWS];
    double squares = 0, most = 0;

    for (int i = 0; i < ROWS * COLS; i++) squares += (double)G[i] * (double)G[i];
    for (int i = 0; i < ROWS * COLS; i++) X[i] = G[i] / (float)sqrt(squares);
    for (int t = 0; t < STRIPED_ITERATIONS; t++) {
        product(A, X, X, ROWS, COLS, ROWS, true);
        product(B, A, A, ROWS, ROWS, ROWS, false);
        for (int i = 0; i < ROWS * ROWS; i++) B[i] = STRIPED_B * A[i] + STRIPED_C * B[i];
        product(next, B, X, ROWS, ROWS, COLS, false);
        for (int i = 0; i < ROWS * COLS; i++) X[i] = next[i] + STRIPED_A * X[i];
    }
    for (int i = 0; i < ROWS * COLS; i++) most = fmax(most, fabs((double)X[i]));
    for (int i = 0; i < ROWS * COLS; i++) W[i] -= X[i] / (1 + (float)most);
}

TEST(an_iteration_in_stripes_has_the_bits_of_plain_loops)
{
    static const int stripes[] = { 1, 2, 3, 5, 8 }, threads[] = { 1, 2, 5 };

    for (size_t s = 0; s < sizeof stripes / sizeof stripes[0]; s++)
        for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
            pd_optim *optim = new_optim(&striped_row, (pd_shape){ 2, { ROWS, COLS } }, stripes[s]);
            float G[ROWS * COLS], W[ROWS * COLS] = { 0 }, plain[ROWS * COLS] = { 0 };
            for (int c = 1; c <= 3; c++) {
                fill(G, ROWS * COLS, c);
                lone_step(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W }, threads[t]);
                striped_twin(plain, G);
                assert_memory_equal(W, plain, sizeof W);
            }
            pd_optim_free(optim);
        }
}
