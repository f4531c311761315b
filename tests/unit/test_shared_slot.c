/* Tests slots that tasks share (pd_slot_spec.share). Each task gets the part of the slot that belongs to its block:
 * a box of a tensor, or one item of a stack with an item for each block. */
#include "test.h"
#include "batch.h"
#include "lone_step.h"
#include "optimizer.h"
#include "partition.h"
#include "stacked_row.h"

enum { MOST = 200, STEPS = 7, SEED = 12 };

static const double no_fact[PD_MAX_MODEL_STATS];

static const pd_shape shapes[] = {
    { 0, { 0 } },    { 1, { 1 } },       { 1, { 10 } },         { 2, { 5, 4 } },
    { 2, { 3, 3 } }, { 3, { 2, 4, 5 } }, { 4, { 2, 1, 7, 4 } }, { 2, { 0, 3 } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct setup {
    const pd_optimizer_ops *row;
    pd_shape shape;
    int block_size, delay;
    pd_storage storage;
    double threshold;
} setup;

static pd_declaration declare(setup s)
{
    pd_declaration declaration = { .name = "w", .shape = s.shape, .seed = SEED };

    pd_hypers_init(&declaration.hypers, s.row == NULL ? &stacked_row : s.row);
    declaration.hypers.value[STACKED_BLOCK_SIZE] = s.block_size;
    declaration.hypers.value[STACKED_ROOT_DELAY] = s.delay;
    declaration.hypers.value[STACKED_STORAGE] = s.storage;
    declaration.hypers.value[STACKED_THRESHOLD] = s.threshold;
    return declaration;
}

static pd_optim *new_optim(setup s)
{
    pd_declaration declaration = declare(s);
    pd_optim *optim;

    assert_int_equal(pd_optim_new(&optim, &declaration, no_fact, NULL), PD_OK);
    return optim;
}

static void fill_gradient(float *G, int64_t n, int step)
{
    for (int64_t i = 0; i < n; i++) G[i] = sinf((float)(i + 1) * (float)(step + 1) * 0.7f);
}

static void step_with(pd_optim *optim, const float *G, const float *before, float *after, int threads,
                      const pd_draws *draws)
{
    lone_step(optim, &(pd_step_io){ .gradient = G, .before = before, .after = after, .draws = draws }, threads);
}

static void step(pd_optim *optim, const float *G, float *W)
{
    step_with(optim, G, W, W, 2, NULL);
}

/* The optimizer as documented in stacked_row.h, in loops over the elements of the whole tensor. */

typedef struct result {
    float Q[MOST][STACKED_SQUARE], tally[MOST], T[MOST];
} result;

typedef struct twin {
    setup s;
    int64_t n, blocks;
    int block_of[MOST]; /* by element */
    float W[MOST];
    result now, captured[STEPS + 1]; /* by step */
} twin;

/* Finds the block of each element by the element's coordinates. */
static void map_blocks(twin *t)
{
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t b = 0; b < t->blocks; b++) {
            pd_block block = pd_partition_block(&t->s.shape, t->s.block_size, b);
            int64_t rest = i;
            bool inside = true;
            for (int d = t->s.shape.rank - 1; d >= 0; d--) {
                int64_t at = rest % t->s.shape.dim[d];
                rest /= t->s.shape.dim[d];
                inside = inside && at >= block.start[d] && at < block.start[d] + block.size[d];
            }
            if (inside) t->block_of[i] = (int)b;
        }
}

static void twin_new(twin *t, setup s)
{
    memset(t, 0, sizeof *t);
    t->s = s;
    assert_int_equal(pd_shape_elements(&s.shape, &t->n), PD_OK);
    t->blocks = pd_partition_count(&s.shape, s.block_size);
    map_blocks(t);
    for (int64_t b = 0; b < t->blocks; b++) {
        t->now.Q[b][0] = t->now.Q[b][STACKED_COLS + 1] = 1.5f;
        t->now.tally[b] = 0.25f;
    }
}

static float noise(int64_t count, int64_t b, const pd_draws *draws)
{
    pd_random own = pd_random_fold(pd_random_fold(pd_random_stream(SEED, "w"), (uint64_t)count), (uint64_t)b);
    pd_random all = pd_random_fold(pd_random_stream(SEED, ""), (uint64_t)count);

    return draws == NULL ? (float)(own.key[0] % 16) + (float)(all.key[0] % 16)
                         : draws->normal[b] + (float)draws->uniform;
}

static void twin_capture(twin *t, const float *G, int64_t count, const pd_draws *draws)
{
    result *out = &t->captured[count];

    *out = t->now;
    for (int64_t b = 0; b < t->blocks; b++) {
        float s = noise(count, b, draws);
        for (int64_t i = 0; i < t->n; i++) s += t->block_of[i] == b ? G[i] : 0;
        for (int k = 0; k < STACKED_SQUARE; k++)
            out->Q[b][k] = t->now.Q[b][k] / 2 + (k == 0 || k == STACKED_COLS + 1 ? s : 0);
        out->tally[b] = t->now.tally[b] + 1;
    }
    for (int64_t i = 0; i < t->n; i++) out->T[i] = G[i] * out->Q[t->block_of[i]][0] - t->now.T[i] / 4;
}

static void settle(float *x, int64_t n, pd_storage storage)
{
    uint16_t codes[MOST * STACKED_SQUARE];
    pd_quantized q = { .storage = storage, .rows = n, .cols = 1, .codes = codes };

    if (storage == PD_STORE_F32) return;
    pd_quantize(&q, x);
    pd_dequantize(x, &q);
}

static void twin_step(twin *t, const float *G, int64_t count, const pd_draws *draws)
{
    twin_capture(t, G, count, draws);
    if (count > t->s.delay) t->now = t->captured[count - t->s.delay];
    for (int64_t i = 0; i < t->n; i++) t->W[i] = t->W[i] - (G[i] + t->now.T[i]) / 8;
    settle(t->now.Q[0], t->blocks * STACKED_SQUARE, t->s.storage);
    settle(t->now.T, t->n, t->s.storage);
}

static void assert_slot(const pd_optim *optim, int slot, const float *expected, int64_t n)
{
    float values[MOST * STACKED_SQUARE] = { 0 };

    pd_optim_read_slot(optim, (size_t)slot, values);
    assert_memory_equal(values, expected, (size_t)n * sizeof *values);
}

static void assert_state(const pd_optim *optim, const twin *t)
{
    assert_slot(optim, STACKED_Q, t->now.Q[0], t->blocks * STACKED_SQUARE);
    assert_slot(optim, STACKED_TALLY, t->now.tally, t->blocks);
    assert_slot(optim, STACKED_TRACE, t->now.T, t->n);
}

/* Compares the optimizer `row` with the second implementation for every shape, block size, delay and storage type. */
static void assert_runs_as_its_twin(const pd_optimizer_ops *row, bool in_place, const pd_draws *draws)
{
    for (int c = 0; c < SHAPES * 3 * 3 * 2; c++) {
        setup s = { row,
                    shapes[c % SHAPES],
                    (int[]){ 3, 2, 0 }[c / SHAPES % 3],
                    c / SHAPES / 3 % 3,
                    c / SHAPES / 9 == 0 ? PD_STORE_F32 : PD_STORE_BF16,
                    0 };
        pd_optim *optim = new_optim(s);
        float W[2][MOST] = { { 0 } }, G[MOST];
        static twin t;
        twin_new(&t, s);
        assert_state(optim, &t);
        for (int k = 1; k <= STEPS; k++) {
            float *after = in_place ? W[0] : W[k % 2];
            fill_gradient(G, t.n, k);
            step_with(optim, G, in_place ? W[0] : W[1 - k % 2], after, 1 + k % 2, draws);
            twin_step(&t, G, k, draws);
            assert_memory_equal(after, t.W, (size_t)t.n * sizeof(float));
            assert_state(optim, &t);
        }
        pd_optim_free(optim);
    }
}

HOLDS(a_task_sees_and_writes_its_own_box_and_item_alone, assert_runs_as_its_twin(&stacked_row, false, NULL));

HOLDS(the_direction_is_captured_wherever_it_lies, assert_runs_as_its_twin(&stacked_row, true, NULL));

HOLDS(a_row_that_adopts_finds_its_items, assert_runs_as_its_twin(&stacked_row_adopting, false, NULL));

TEST(given_draws_take_the_place_of_the_streams)
{
    float normal[MOST];

    for (int i = 0; i < MOST; i++) normal[i] = (float)(i % 5) - 2;
    assert_runs_as_its_twin(&stacked_row, false, &(pd_draws){ .normal = normal, .uniform = 0.5 });
}

TEST(draws_belong_to_their_step)
{
    setup s = { .shape = shapes[3], .block_size = 3, .delay = 2 };
    pd_optim *optim = new_optim(s);
    float W[MOST] = { 0 }, G[MOST], normal[MOST], given[MOST];
    static twin t;

    twin_new(&t, s);
    for (int k = 1; k <= STEPS; k++) {
        pd_draws draws = { given, k, 4 }, kept = { normal, k, 4 };
        for (int i = 0; i < MOST; i++) given[i] = normal[i] = (float)(k * i);
        fill_gradient(G, t.n, k);
        step_with(optim, G, W, W, 1, k % 3 == 0 ? NULL : &draws);
        memset(given, 0xff, sizeof given); /* tasks have read the random numbers already, though no root is in use
                                            * yet */
        twin_step(&t, G, k, k % 3 == 0 ? NULL : &kept);
        assert_state(optim, &t);
    }
    pd_optim_free(optim);
}

TEST(a_model_takes_as_many_normals_as_its_row_wants)
{
    pd_declaration declaration = declare((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3 });
    float W[20] = { 0 }, before[20] = { 0 }, G[20], normal[4] = { 1, 2, 3, 4 };
    pd_draws draws = { normal, 0, 5 };
    pd_step_io io = { .gradient = G, .before = W, .after = W, .draws = &draws };
    pd_model *model;
    pd_error err;

    fill_gradient(G, 20, 1);
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, &err), PD_OK);
    assert_int_equal(pd_model_step(model, &io, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "parameter w: expected 4 normal numbers for a step, got 5");
    assert_memory_equal(W, before, sizeof W);
    assert_int_equal(pd_model_count(model, 0), 0);
    draws.n_normal = 4;
    assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
    draws = (pd_draws){ NULL, 0, 9 };
    assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
    pd_model_free(model);
}

TEST(a_row_that_takes_no_draws_is_given_none)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { 1 } } };
    float w = 0, g = 1, normal = 1;
    pd_draws draws = { &normal, 0, 1 };
    pd_step_io io = { .gradient = &g, .before = &w, .after = &w, .draws = &draws };
    pd_model *model;

    pd_hypers_init(&declaration.hypers, pd_optim_find("sgd"));
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, NULL), PD_OK);
    assert_int_equal(pd_model_step(model, &io, NULL), PD_INVALID_ARGUMENT);
    draws.n_normal = 0;
    assert_int_equal(pd_model_step(model, &io, NULL), PD_OK);
    pd_model_free(model);
}

TEST(due_sees_what_the_phases_before_it_left)
{
    pd_optim *optim = new_optim((setup){ .shape = { 1, { 4 } }, .threshold = 2 });
    float W[4] = { 0 };

    step(optim, (float[]){ 1, 9, 9, 9 }, W);
    assert_int_equal(pd_optim_root_stats(optim).due, 0);
    step(optim, (float[]){ -2, 0, 0, 0 }, W);
    assert_int_equal(pd_optim_root_stats(optim).due, 1);
    pd_optim_free(optim);
}

static void assert_blocks(const pd_optim *optim, const float *tally)
{
    assert_slot(optim, STACKED_TALLY, tally, 4);
}

TEST(a_nan_in_one_box_spoils_that_task_alone)
{
    pd_optim *optim = new_optim((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3 });
    float W[20] = { 0 }, G[20];

    fill_gradient(G, 20, 1);
    G[4 * 3 + 1] = NAN; /* row 3, column 1: an element of block 2 */
    step(optim, G, W);
    assert_blocks(optim, (float[]){ 1.25f, 1.25f, 0.25f, 1.25f });
    assert_int_equal(pd_optim_root_stats(optim).failed, 1);
    assert_true(isnan(pd_optim_root(optim, 2).error)); /* the task was not run */
    pd_optim_free(optim);
}

TEST(a_refused_task_leaves_its_items_and_its_box)
{
    pd_optim *optim = new_optim((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3, .storage = PD_STORE_BF16 });
    float W[20] = { 0 }, G[20], T[20];

    fill_gradient(G, 20, 1);
    G[4 * 4 + 3] = 1e7f; /* block 3 */
    step(optim, G, W);
    assert_blocks(optim, (float[]){ 1.25f, 1.25f, 1.25f, 0.25f });
    pd_optim_read_slot(optim, STACKED_TRACE, T);
    for (int i = 0; i < 20; i++) assert_true((T[i] == 0) == (i % 4 == 3 && i / 4 >= 3));
    pd_optim_free(optim);
}

/* The task's new Q, 5 + 1.5 / 2, and the direction are finite. Two of their products, the new values of the slot
 * "trace", are not, so the task is refused. */
TEST(what_does_not_come_out_finite_is_refused)
{
    pd_optim *optim = new_optim((setup){ .shape = { 1, { 4 } } });
    float W[4] = { 0 };
    pd_draws draws = { (float[]){ 0 }, 0, 1 };

    step_with(optim, (float[]){ 0, 3e38f, -3e38f, 5 }, W, W, 1, &draws);
    assert_slot(optim, STACKED_TALLY, (float[]){ 0.25f }, 1);
    assert_true(pd_optim_root(optim, 0).error == 0); /* it was run */
    pd_optim_free(optim);
}

TEST(a_capture_takes_the_memory_of_its_shares)
{
    pd_declaration declaration =
        declare((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3, .storage = PD_STORE_BF16 });
    pd_plan plan;

    assert_int_equal(pd_plan_make(&plan, &declaration, no_fact, NULL), PD_OK);
    assert_int_equal(pd_plan_task_bytes(&plan),
                     4 * (3 * 20 + 4 * 2 * (STACKED_SQUARE + 1))); /* direction; "trace" before and after; Q and
                                                                    * tally before and after, of 4 blocks */
    assert_int_equal(pd_plan_state_bytes(&plan), 2 * (20 + 4 * STACKED_SQUARE) + 4 * 4);
    assert_int_equal(pd_plan_step_bytes(&plan), 4 * (20 + 4 * STACKED_SQUARE));
    assert_int_equal(pd_task_elements(&plan, &plan.tasks[3], STACKED_DIRECTION), 2 * 1);
    assert_int_equal(pd_task_elements(&plan, &plan.tasks[3], STACKED_Q), STACKED_SQUARE);
    assert_int_equal(pd_task_share_bytes(&plan, &plan.tasks[1], STACKED_TRACE), 3 * 1 * 4);
    pd_plan_free(&plan);
}

/* Tries a step in which allocation number `failing` fails. Then the step does not begin, one task counts as failed,
 * or the tasks use separate memory. */
static void try_step(pd_optim *optim, int64_t failing, bool *came_so_far)
{
    float W[20] = { 0 }, G[20];
    int64_t failed;
    int rc;

    fill_gradient(G, 20, 1);
    oom_arm(failing);
    rc = pd_optim_begin(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W });
    if (rc == PD_OK) rc = pd_batch_run(&optim, 1, 1);
    *came_so_far = oom_disarm();
    failed = pd_optim_root_stats(optim).failed;
    assert_true(!*came_so_far || rc == PD_NO_MEMORY || failed <= 1);
    assert_true(*came_so_far || (rc == PD_OK && failed == 0));
    for (pd_task *task; (task = pd_optim_capture(optim)) != NULL; pd_task_free(task)) pd_task_run(task);
}

TEST(every_allocation_of_a_step_may_fail)
{
    bool came_so_far = true;

    for (int64_t n = 0; came_so_far; n++) {
        pd_optim *optim = new_optim((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3, .storage = PD_STORE_BF16 });
        try_step(optim, n, &came_so_far);
        pd_optim_free(optim);
    }
}

static pd_part part_of(const pd_optim *optim, const char *name, int number, int block)
{
    pd_part part;

    assert_true(pd_plan_part(pd_optim_plan(optim), name, number, block, &part));
    return part;
}

TEST_STATE(a_block_of_a_stack_is_its_item)
{
    for (pd_storage storage = PD_STORE_F32; storage <= PD_STORE_BF16; storage++) {
        pd_optim *optim = new_optim((setup){ .shape = { 2, { 5, 4 } }, .block_size = 3, .storage = storage });
        double item[STACKED_SQUARE] = { 2, 3, 4, 5, 6, 7 }, all[4][STACKED_SQUARE], number[1];
        pd_part third = part_of(optim, "Q", 0, 2), whole = part_of(optim, "Q", 0, -1),
                tally = part_of(optim, "tally", -1, 3), none;
        (void)state;
        assert_int_equal(third.shape.rank, 2);
        assert_int_equal(third.shape.dim[0], STACKED_ROWS);
        assert_int_equal(third.shape.dim[1], STACKED_COLS);
        assert_int_equal(pd_optim_write_part(optim, &third, item), PD_OK);
        pd_optim_read_part(optim, &whole, all[0]);
        for (int b = 0; b < 4; b++)
            for (int k = 0; k < STACKED_SQUARE; k++)
                assert_true(all[b][k] == (b == 2 ? item[k] : k == 0 || k == STACKED_COLS + 1 ? 1.5 : 0));
        memset(item, 0, sizeof item);
        pd_optim_read_part(optim, &third, item);
        assert_memory_equal(item, all[2], sizeof item);
        pd_optim_read_part(optim, &tally, number);
        assert_true(number[0] == 0.25);
        assert_false(pd_plan_part(pd_optim_plan(optim), "Q", 0, 4, &none));
        pd_optim_free(optim);
    }
}
