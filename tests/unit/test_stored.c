/* Tests slots that are stored in fewer bits, slots that share memory with the new weights, and roots that are
 * adopted when they are ready. */
#include "test.h"
#include "state.h"
#include "batch.h"
#include "optimizer.h"
#include "partition.h"

static const double no_stats[PD_MAX_MODEL_STATS];

/* An optimizer with a choice of storage: for each block of a matrix, a statistic and a root. */

enum { STORAGE, DELAY, LAZY };
static const pd_hyper thrifty_hypers[] = {
    [STORAGE] = { "storage", PD_CHOICE, 0, 0, 0, "float32|bfloat16|int8|int16|float16", "of everything", false },
    [DELAY] = { "root_delay", PD_INT, 0, -1, 8, NULL, "", false },
    [LAZY] = { "lazy", PD_FLAG, 0, 0, 1, NULL, "statistics are left alone", true },
    { .name = NULL },
};

enum { DIRECTION, MOMENTUM, LAST_ERRORS, FIRST_BLOCK };
enum { ROWS = 5, COLS = 4, SIDE = 3, BLOCKS = 4 };

static int statistics_of(int64_t block)
{
    return FIRST_BLOCK + 2 * (int)block;
}
static int root_of(int64_t block)
{
    return statistics_of(block) + 1;
}

static int plan_block(pd_plan *plan, int b, pd_storage storage)
{
    int64_t side = plan->blocks[b].size[0];
    pd_slot_spec statistics = { .name = "statistics",
                                .number = b,
                                .shape = { 2, { side, side } },
                                .storage = storage,
                                .symmetric = storage == PD_STORE_F32,
                                .diagonal_apart = storage > PD_STORE_BF16,
                                .blockwise = true,
                                .block = b };
    pd_slot_spec root = statistics;

    root.name = "root";
    root.symmetric = false;
    root.fill = 1;
    root.identity = true;
    if (pd_plan_slot(plan, &statistics) < 0 || pd_plan_slot(plan, &root) < 0) return PD_NO_MEMORY;
    return pd_plan_task(
        plan, &(pd_task_spec){
                  .block = b, .n_inputs = 1, .n_outputs = 1, .input = { statistics_of(b) }, .output = { root_of(b) } });
}

static int thrifty_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_storage storage = (pd_storage)declaration->hypers.value[STORAGE];

    (void)stats, (void)err;
    plan->root_delay = (int)declaration->hypers.value[DELAY];
    plan->range_elements = 7;
    plan->scratch_floats = SIDE * SIDE;
    if (pd_plan_blocks(plan, SIDE) != PD_OK) return PD_NO_MEMORY;
    if (pd_plan_slot(
            plan,
            &(pd_slot_spec){
                .name = "direction", .number = -1, .shape = plan->shape, .temporary = true, .in_after = true }) < 0 ||
        pd_plan_slot(
            plan, &(pd_slot_spec){ .name = "momentum", .number = -1, .shape = plan->shape, .storage = storage }) < 0 ||
        pd_plan_slot(plan, &(pd_slot_spec){ .name = "last_errors", .number = -1, .shape = { 1, { BLOCKS } } }) < 0)
        return PD_NO_MEMORY;
    for (size_t b = 0; b < plan->n_blocks; b++)
        if (plan_block(plan, (int)b, storage) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

/* Sets S to S / 2 + G G'. Computes only the lower half if the slot is symmetric. */
static void update_statistics(const pd_unit *unit)
{
    int64_t m = unit->block->size[0], n = unit->block->size[1];
    float *S = unit->slot[statistics_of(unit->index)], *G = unit->scratch;
    bool half = unit->plan->slots[statistics_of(unit->index)].symmetric;

    pd_block_gather(G, unit->gradient, &unit->plan->shape, unit->block);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < (half ? i + 1 : m); j++) {
            float sum = 0;
            for (int64_t k = 0; k < n; k++) sum += G[i * n + k] * G[j * n + k];
            S[i * m + j] = S[i * m + j] / 2 + sum;
        }
}

static bool is_lazy(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)plan, (void)count;
    return hyper[LAZY] != 0;
}

static bool every_step(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)hyper, (void)count, (void)slot;
    return true;
}

/* Stands in for a root: R = 1 / (1 + |S|) element by element. A statistic above 1e6 is refused. */
static int invert(pd_task_view *task)
{
    int64_t n = task->plan->blocks[task->spec->block].size[0];

    task->error = fabs((double)task->input[0][0]);
    task->condition = 7;
    if (task->error > 1e6) return PD_OUT_OF_RANGE;
    for (int64_t i = 0; i < n * n; i++) task->output[0][i] = 1 / (1 + fabsf(task->input[0][i]));
    return PD_OK;
}

static void note(const pd_task_view *task, float *const *slot)
{
    slot[LAST_ERRORS][task->spec->block] = (float)(task->status == PD_OK ? task->error : -task->error);
}

/* D = R G, the root times the gradient */
static void precondition(const pd_unit *unit)
{
    int64_t m = unit->block->size[0], n = unit->block->size[1];
    const float *R = unit->slot[root_of(unit->index)];

    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++) {
            float sum = 0;
            for (int64_t j = 0; j < m; j++)
                sum += R[i * m + j] * unit->gradient[(unit->block->start[0] + j) * COLS + unit->block->start[1] + k];
            unit->slot[DIRECTION][(unit->block->start[0] + i) * COLS + unit->block->start[1] + k] = sum;
        }
}

static void move(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++) {
        unit->slot[MOMENTUM][i] = unit->slot[MOMENTUM][i] / 2 + unit->slot[DIRECTION][i];
        unit->after[i] = unit->before[i] - unit->slot[MOMENTUM][i] / 8;
    }
}

static const pd_optimizer_ops thrifty = {
    .name = "thrifty",
    .hypers = thrifty_hypers,
    .plan = thrifty_plan,
    .capture_phase = 1,
    .adopt_phase = 1,
    .due = every_step,
    .task = invert,
    .note = note,
    .phases = { { "statistics", PD_BLOCKS, update_statistics, { 0 }, is_lazy },
                { "precondition", PD_BLOCKS, precondition, { 0 }, NULL },
                { "move", PD_RANGES, move, { 0 }, NULL } },
};

static pd_declaration declare(pd_storage storage, int delay)
{
    pd_declaration declaration = { .name = "w", .shape = { 2, { ROWS, COLS } } };

    pd_hypers_init(&declaration.hypers, &thrifty);
    declaration.hypers.value[STORAGE] = storage;
    declaration.hypers.value[DELAY] = delay;
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
    for (int i = 0; i < ROWS * COLS; i++) G[i] = sinf((float)(i + 1) * (float)(step + 1) * 0.7f);
}

/* Runs and delivers all tasks that the optimizer hands out. */
static void run_tasks(pd_optim *optim)
{
    pd_task *task;

    while ((task = pd_optim_capture(optim)) != NULL) {
        pd_task_run(task);
        pd_optim_deliver(optim, task);
    }
}

static void step(pd_optim *optim, const float *G, const float *before, float *after)
{
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = G, .before = before, .after = after }), PD_OK);
    do {
        assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
        run_tasks(optim);
    } while (!pd_optim_done(optim));
}

/* The second implementation: in float32; values are stored and read back at the places that optimizer_ops.h names. */

typedef struct twin {
    float W[ROWS * COLS], M[ROWS * COLS], S[BLOCKS][SIDE * SIDE], R[BLOCKS][SIDE * SIDE];
} twin;

static void settle(float *x, pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols)
{
    pd_quantized q;
    void *memory;

    if (storage == PD_STORE_F32) return;
    memory = aligned_alloc(64, (size_t)pd_quantized_room(storage, diagonal_apart, rows, cols));
    q = pd_quantized_at(memory, storage, diagonal_apart, rows, cols);
    pd_quantize(&q, x);
    pd_dequantize(x, &q);
    free(memory);
}

static void twin_new(twin *t, pd_storage storage)
{
    const pd_shape shape = { 2, { ROWS, COLS } };

    memset(t, 0, sizeof *t);
    for (int b = 0; b < BLOCKS; b++) {
        int64_t n = pd_partition_block(&shape, SIDE, b).size[0];
        for (int64_t i = 0; i < n; i++) t->R[b][i * n + i] = 1;
        settle(t->R[b], storage, storage > PD_STORE_BF16, n, n);
    }
}

static void twin_step(twin *t, const float *G, pd_storage storage)
{
    const pd_shape shape = { 2, { ROWS, COLS } };
    float D[ROWS * COLS];

    for (int b = 0; b < BLOCKS; b++) {
        pd_block block = pd_partition_block(&shape, SIDE, b);
        int64_t m = block.size[0], n = block.size[1];
        const float *g = G + block.start[0] * COLS + block.start[1];
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                float sum = 0;
                for (int64_t k = 0; k < n; k++) sum += g[i * COLS + k] * g[j * COLS + k];
                t->S[b][i * m + j] = t->S[b][i * m + j] / 2 + sum;
            }
        settle(t->S[b], storage, storage > PD_STORE_BF16, m, m);
        for (int64_t i = 0; i < m * m; i++) t->R[b][i] = 1 / (1 + fabsf(t->S[b][i]));
        settle(t->R[b], storage, storage > PD_STORE_BF16, m, m);
        for (int64_t i = 0; i < m; i++)
            for (int64_t k = 0; k < n; k++) {
                float sum = 0;
                for (int64_t j = 0; j < m; j++) sum += t->R[b][i * m + j] * g[j * COLS + k];
                D[(block.start[0] + i) * COLS + block.start[1] + k] = sum;
            }
    }
    for (int i = 0; i < ROWS * COLS; i++) {
        t->M[i] = t->M[i] / 2 + D[i];
        t->W[i] = t->W[i] - t->M[i] / 8;
    }
    settle(t->M, storage, false, ROWS, COLS);
}

static void assert_slot(const pd_optim *optim, int slot, const float *expected)
{
    int64_t n = 0;
    float *values;

    (void)pd_shape_elements(&pd_optim_plan(optim)->slots[slot].shape, &n);
    values = calloc((size_t)n, sizeof *values);
    pd_optim_read_slot(optim, (size_t)slot, values);
    assert_memory_equal(values, expected, (size_t)n * sizeof *values);
    free(values);
}

TEST(phases_see_float32_and_the_form_stored_is_what_is_left)
{
    for (pd_storage storage = PD_STORE_F32; storage <= PD_STORE_F16; storage++) {
        pd_optim *optim = new_optim(storage, 0);
        float W[2][ROWS * COLS] = { { 0 } }, G[ROWS * COLS];
        twin t;
        twin_new(&t, storage);
        for (int s = 0; s < 6; s++) {
            fill_gradient(G, s);
            step(optim, G, W[s % 2], W[1 - s % 2]);
            twin_step(&t, G, storage);
            assert_memory_equal(W[1 - s % 2], t.W, sizeof t.W);
            assert_slot(optim, MOMENTUM, t.M);
            for (int b = 0; b < BLOCKS; b++) {
                assert_slot(optim, statistics_of(b), t.S[b]);
                assert_slot(optim, root_of(b), t.R[b]);
            }
        }
        pd_optim_free(optim);
    }
}

TEST(a_step_in_place_gives_the_bits_of_one_beside)
{
    for (pd_storage storage = PD_STORE_F32; storage <= PD_STORE_F16; storage++) {
        pd_optim *beside = new_optim(storage, 0), *in_place = new_optim(storage, 0);
        float W[2][ROWS * COLS] = { { 0 } }, X[ROWS * COLS] = { 0 }, G[ROWS * COLS];
        for (int s = 0; s < 4; s++) {
            fill_gradient(G, s);
            step(beside, G, W[s % 2], W[1 - s % 2]);
            step(in_place, G, X, X);
            assert_memory_equal(X, W[1 - s % 2], sizeof X);
        }
        pd_optim_free(beside);
        pd_optim_free(in_place);
    }
}

static void lazy_step(pd_optim *optim, const float *G, float *W)
{
    double lazy[PD_MAX_HYPERS];

    memcpy(lazy, pd_optim_hypers(optim)->value, sizeof lazy);
    lazy[LAZY] = 1;
    assert_int_equal(
        pd_optim_begin(
            optim, &(pd_step_io){ .gradient = G, .before = W, .after = W, .hypers = lazy, .hypers_mask = UINT64_MAX }),
        PD_OK);
    do {
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        run_tasks(optim);
    } while (!pd_optim_done(optim));
}

/* A step that does not change a slot must leave its codes as they are, whether the library compares values or stores
 * them again. There are many trials, because a bucket that changes in its last bit shows only in some columns. */
TEST(what_a_step_leaves_alone_keeps_its_codes)
{
    for (int seed = 0; seed < 40; seed++) {
        pd_optim *optim = new_optim(PD_STORE_INT8, 0);
        float W[ROWS * COLS] = { 0 }, G[ROWS * COLS], before[BLOCKS][SIDE * SIDE];
        fill_gradient(G, seed);
        step(optim, G, W, W);
        for (int b = 0; b < BLOCKS; b++) pd_optim_read_slot(optim, (size_t)statistics_of(b), before[b]);
        lazy_step(optim, G, W);
        lazy_step(optim, G, W);
        for (int b = 0; b < BLOCKS; b++) assert_slot(optim, statistics_of(b), before[b]);
        pd_optim_free(optim);
    }
}

TEST(a_symmetric_slot_is_read_with_both_halves)
{
    pd_optim *optim = new_optim(PD_STORE_F32, 0);
    float W[ROWS * COLS] = { 0 }, G[ROWS * COLS], S[SIDE * SIDE];

    fill_gradient(G, 0);
    step(optim, G, W, W);
    assert_true(pd_optim_slot(optim, (size_t)statistics_of(0)).at[1] == 0); /* no step writes the upper half */
    pd_optim_read_slot(optim, (size_t)statistics_of(0), S);
    assert_true(S[1] != 0);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) assert_true(S[i * SIDE + j] == S[j * SIDE + i]);
    pd_optim_free(optim);
}

TEST(bytes_of_state_are_those_of_the_form_stored)
{
    pd_declaration declaration = declare(PD_STORE_INT16, 0);
    int64_t squares[BLOCKS] = { 3, 3, 2, 2 },
            expected = 2 * ROWS * COLS + 4 * COLS + 4 * BLOCKS; /* bytes of the momentum, its buckets, and the root
                                                                 * errors */
    pd_optim *optim = new_optim(PD_STORE_INT16, 0);
    pd_plan plan;

    for (int b = 0; b < BLOCKS; b++) expected += 2 * (2 * squares[b] * squares[b] + 8 * squares[b]);
    assert_int_equal(pd_optim_state_bytes(optim), expected);
    assert_int_equal(pd_plan_make(&plan, &declaration, no_stats, NULL), PD_OK);
    assert_int_equal(pd_plan_task_bytes(&plan), 2 * 4 * (9 + 9 + 4 + 4));
    pd_plan_free(&plan);
    pd_optim_free(optim);
}

/* Returns the bytes of padding and gaps in the state of adam's two slots with n elements each. *own receives the bytes
 * that the plan counts beside the state. */
static int64_t unused_bytes(int64_t n, int64_t *own)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { n } } };
    int64_t unused;
    pd_optim *optim;
    pd_error err;

    pd_hypers_init(&declaration.hypers, pd_optim_find("adam"));
    if (pd_optim_new(&optim, &declaration, no_stats, &err) != PD_OK) fail_msg("%s", err.text);
    unused = optim->memory.state_bytes - pd_plan_state_bytes(pd_optim_plan(optim));
    *own = pd_plan_own_bytes(pd_optim_plan(optim));
    pd_optim_free(optim);
    return unused;
}

/* A slot of 4 MiB or more counts as large. The gaps are far larger than all other differences between the plans. */
TEST(gaps_between_large_slots_are_counted)
{
    int64_t small_own, large_own, small = unused_bytes((1 << 20) - 16, &small_own),
                                  large = unused_bytes(1 << 20, &large_own);

    assert_true(large > small);
    assert_true(large_own - small_own >= large - small);
}

TEST(a_refused_root_is_noted_and_the_last_good_one_stays)
{
    pd_optim *optim = new_optim(PD_STORE_INT16, 0);
    float W[ROWS * COLS] = { 0 }, G[ROWS * COLS], good[SIDE * SIDE];

    fill_gradient(G, 0);
    step(optim, G, W, W);
    pd_optim_read_slot(optim, (size_t)root_of(0), good);
    assert_true(pd_optim_slot(optim, LAST_ERRORS).at[0] > 0);
    G[0] = 1e4f;
    step(optim, G, W, W);
    assert_slot(optim, root_of(0), good);
    assert_true(pd_optim_slot(optim, LAST_ERRORS).at[0] < -1e6f);
    assert_true(pd_optim_slot(optim, LAST_ERRORS).at[1] > 0);
    assert_int_equal(pd_optim_root(optim, 0).count, 1);
    assert_int_equal(pd_optim_root(optim, 0).failed, 1);
    assert_true(pd_optim_root(optim, 0).error > 1e6);
    assert_int_equal(pd_optim_root(optim, 1).count, 2);
    assert_int_equal(pd_optim_root(optim, 1).adopted, 2);
    assert_true(pd_optim_root(optim, 1).condition == 7);
    assert_int_equal(pd_optim_root_stats(optim).adopted, 7);
    assert_int_equal(pd_optim_root_stats(optim).failed, 1);
    pd_optim_free(optim);
}

TEST(statistics_that_are_not_finite_never_reach_the_task)
{
    pd_optim *optim = new_optim(PD_STORE_F32, 0);
    float W[ROWS * COLS] = { 0 }, G[ROWS * COLS];

    fill_gradient(G, 0);
    G[0] = NAN;
    step(optim, G, W, W);
    assert_int_equal(pd_optim_root(optim, 0).failed, 1);
    assert_true(isnan(pd_optim_root(optim, 0).error));
    assert_int_equal(pd_optim_root(optim, 1).failed, 0);
    pd_optim_free(optim);
}

/* Takes a step that does not wait for roots. `out` gets its preconditioner tasks, which are not run. */
static void step_ready(pd_optim *optim, float *W, int number, pd_task **out)
{
    float G[ROWS * COLS];
    pd_task *task;
    int n = 0;

    fill_gradient(G, number);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W }), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_true(pd_optim_done(optim));
    while ((task = pd_optim_capture(optim)) != NULL) out[n++] = task;
    assert_int_equal(n, BLOCKS);
}

static void deliver(pd_optim *optim, pd_task **tasks, int n, bool run)
{
    for (int i = 0; i < n; i++) {
        if (run) pd_task_run(tasks[i]);
        pd_optim_deliver(optim, tasks[i]);
    }
}

TEST(ready_adopts_what_is_back_and_never_waits)
{
    pd_optim *optim = new_optim(PD_STORE_F32, PD_ROOT_READY);
    float W[ROWS * COLS] = { 0 };
    pd_task *first[BLOCKS], *second[BLOCKS], *third[BLOCKS];

    step_ready(optim, W, 0, first);
    step_ready(optim, W, 1, second);
    assert_int_equal(pd_optim_root_stats(optim).adopted, 0);
    deliver(optim, first, 2, true);
    step_ready(optim, W, 2, third);
    assert_int_equal(pd_optim_root_stats(optim).adopted, 2);
    assert_int_equal(pd_optim_root(optim, 0).count, 1);
    assert_int_equal(pd_optim_root(optim, 3).count, 0);
    assert_int_equal(pd_optim_root_stats(optim).waits, 0);
    deliver(optim, first + 2, 2, true);
    deliver(optim, second, BLOCKS, true);
    deliver(optim, third, BLOCKS, true);
    pd_optim_free(optim);
}

TEST(a_late_result_never_replaces_a_newer_one)
{
    pd_optim *optim = new_optim(PD_STORE_F32, PD_ROOT_READY);
    float W[ROWS * COLS] = { 0 };
    pd_task *first[BLOCKS], *second[BLOCKS], *third[BLOCKS], *fourth[BLOCKS];

    step_ready(optim, W, 0, first);
    step_ready(optim, W, 1, second);
    deliver(optim, second, BLOCKS, true);
    step_ready(optim, W, 2, third);
    deliver(optim, first, BLOCKS, true);
    step_ready(optim, W, 3, fourth);
    assert_int_equal(pd_optim_root(optim, 0).count, 2);
    assert_int_equal(pd_optim_root_stats(optim).adopted, BLOCKS);
    assert_int_equal(pd_optim_root_stats(optim).replaced, BLOCKS);
    deliver(optim, third, BLOCKS, true);
    deliver(optim, fourth, BLOCKS, true);
    pd_optim_free(optim);
}

TEST(a_task_that_gave_way_to_a_newer_one_is_no_failure)
{
    pd_optim *optim = new_optim(PD_STORE_F32, PD_ROOT_READY);
    float W[ROWS * COLS] = { 0 };
    pd_task *first[BLOCKS], *second[BLOCKS];

    step_ready(optim, W, 0, first);
    deliver(optim, first, BLOCKS, false);
    step_ready(optim, W, 1, second);
    assert_int_equal(pd_optim_root_stats(optim).replaced, BLOCKS);
    assert_int_equal(pd_optim_root_stats(optim).failed, 0);
    deliver(optim, second, BLOCKS, true);
    pd_optim_free(optim);
}

TEST(without_memory_there_is_no_optimizer_and_no_step)
{
    pd_declaration declaration = declare(PD_STORE_INT8, 0);
    float W[ROWS * COLS] = { 0 }, G[ROWS * COLS];
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
    assert_int_equal(pd_optim_count(optim), 0);
    step(optim, G, W, W);
    pd_optim_free(optim);
}

TEST(a_model_reads_its_slots_by_name)
{
    pd_declaration declaration = declare(PD_STORE_INT8, 0);
    float W[ROWS * COLS] = { 0 }, G[ROWS * COLS];
    double M[ROWS * COLS], R[SIDE * SIDE];
    pd_model *model;
    pd_error err;

    fill_gradient(G, 0);
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, &err), PD_OK);
    assert_int_equal(pd_model_step(model, &(pd_step_io){ .gradient = G, .before = W, .after = W }, &err), PD_OK);
    assert_int_equal(pd_model_read_part(model, 0, "momentum", -1, -1, M, ROWS * COLS, &err), PD_OK);
    assert_true(M[0] != 0);
    assert_int_equal(pd_model_read_part(model, 0, "root", 3, -1, R, 4, &err), PD_OK);
    assert_int_equal(pd_model_read_part(model, 0, "root", 3, -1, R, 9, &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_model_read_part(model, 0, "root", 4, -1, R, 4, &err), PD_NOT_FOUND);
    assert_int_equal(pd_model_read_part(model, 0, "direction", -1, -1, M, ROWS * COLS, &err), PD_NOT_FOUND);
    pd_model_free(model);
}
