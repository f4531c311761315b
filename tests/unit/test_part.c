/* Tests parts of an optimizer's state: they are addressed by names and blocks, and are read and written in float64
 * whatever type they are stored in. */
#include "test.h"
#include "batch.h"
#include "convert.h"
#include "optimizer.h"
#include "wide_row.h"

enum { ROWS = 5, COLS = 4, N = ROWS * COLS };

static const double no_stats[PD_MAX_MODEL_STATS];

static pd_optim *new_optim(pd_storage storage)
{
    pd_declaration declaration = { .name = "w", .shape = { 2, { ROWS, COLS } } };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, &wide_row);
    declaration.hypers.value[WIDE_STORAGE] = storage;
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    return optim;
}

static pd_part part_of(const pd_optim *optim, const char *slot, int number, int block)
{
    pd_part part;

    assert_true(pd_plan_part(pd_optim_plan(optim), slot, number, block, &part));
    return part;
}

static void write_slot(pd_optim *optim, const char *slot, int number, int block, const double *in)
{
    pd_part part = part_of(optim, slot, number, block);

    assert_int_equal(pd_optim_write_part(optim, &part, in), PD_OK);
}

static void read_slot(const pd_optim *optim, const char *slot, int number, int block, double *out)
{
    pd_part part = part_of(optim, slot, number, block);

    pd_optim_read_part(optim, &part, out);
}

TEST(a_slot_is_found_by_name_number_and_block)
{
    pd_optim *optim = new_optim(PD_STORE_F32);
    pd_part part;

    part = part_of(optim, "momentum", -1, -1);
    assert_int_equal(part.slot, WIDE_MOMENTUM);
    assert_null(part.box);
    assert_true(pd_shape_equal(&part.shape, &(pd_shape){ 2, { ROWS, COLS } }));
    part = part_of(optim, "root", 0, 3);
    assert_int_equal(part.slot, WIDE_FIRST_BLOCK + 3 * 3 + 1);
    assert_null(part.box);
    assert_true(pd_shape_equal(&part.shape, &(pd_shape){ 2, { 2, 2 } }));
    part = part_of(optim, "momentum", -1, 3);
    assert_int_equal(part.slot, WIDE_MOMENTUM);
    assert_ptr_equal(part.box, &pd_optim_plan(optim)->blocks[3]);
    assert_true(pd_shape_equal(&part.shape, &(pd_shape){ 2, { 2, 1 } }));
    pd_optim_free(optim);
}

TEST(what_is_not_kept_is_not_found)
{
    static const struct {
        const char *slot;
        int number, block;
    } cases[] = {
        { "direction", -1, -1 }, { "direction", -1, 0 }, /* temporary */
        { "momentum", 0, -1 },   { "root", -1, 0 },      { "root", 0, -1 }, { "root", 1, 0 },
        { "moment", -1, -1 },    { "momentum", -1, 4 },  { "root", 0, 4 },  { "momentum", -1, -2 },
        { "unfit", -1, 0 }, /* a slot of the whole parameter with another shape has no part for a block */
    };
    pd_optim *optim = new_optim(PD_STORE_F32);
    pd_part part;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_false(pd_plan_part(pd_optim_plan(optim), cases[i].slot, cases[i].number, cases[i].block, &part));
    pd_optim_free(optim);
}

/* The parameter is a single 3 by 3 block, so the block's symmetric statistic has the parameter's shape. */
TEST(a_symmetric_slot_is_no_parameter_to_be_cut)
{
    pd_plan plan = { .shape = { 2, { 3, 3 } }, .elements = 9 };
    pd_part part;

    assert_int_equal(pd_plan_blocks(&plan, 3), PD_OK);
    assert_int_equal(
        pd_plan_slot(&plan,
                     &(pd_slot_spec){ .name = "statistics", .number = 0, .shape = plan.shape, .symmetric = true }),
        0);
    assert_int_equal(pd_plan_slot(&plan, &(pd_slot_spec){ .name = "momentum", .number = 0, .shape = plan.shape }), 1);
    assert_false(pd_plan_part(&plan, "statistics", 0, 0, &part));
    assert_true(pd_plan_part(&plan, "statistics", 0, -1, &part));
    assert_true(pd_plan_part(&plan, "momentum", 0, 0, &part));
    pd_plan_free(&plan);
}

TEST(names_in_files_tell_block_name_and_number)
{
    char text[128];

    assert_string_equal(pd_slot_name(&(pd_slot_spec){ .name = "momentum", .number = -1 }, text, sizeof text),
                        "momentum");
    assert_string_equal(
        pd_slot_name(&(pd_slot_spec){ .name = "statistics", .number = 3, .block = 1 }, text, sizeof text),
        "statistics.3");
    assert_string_equal(
        pd_slot_name(&(pd_slot_spec){ .name = "factor_matrices", .number = 1, .of_block = true, .block = 3 }, text,
                     sizeof text),
        "block_3.factor_matrices.1");
    assert_string_equal(
        pd_slot_name(&(pd_slot_spec){ .name = "filtered_grad", .number = -1, .of_block = true }, text, sizeof text),
        "block_0.filtered_grad");
}

TEST(a_name_too_long_is_cut)
{
    char *text = malloc(4); /* no byte more */

    assert_string_equal(
        pd_slot_name(&(pd_slot_spec){ .name = "filtered_grad", .number = -1, .of_block = true }, text, 4), "blo");
    assert_string_equal(pd_slot_name(&(pd_slot_spec){ .name = "momentum", .number = 7 }, text, 4), "mom");
    free(text);
}

static const pd_storage storages[] = { PD_STORE_F32,   PD_STORE_BF16, PD_STORE_INT8,
                                       PD_STORE_INT16, PD_STORE_F16,  PD_STORE_F64 };
#define EACH_STORAGE (size_t k = 0; k < sizeof storages / sizeof *storages; k++)

/* Returns the largest rounding error of a value that is stored in `storage`. All values of fill_numbers are below 8. */
static double rounding_of(pd_storage storage)
{
    switch (storage) {
    case PD_STORE_F32: return 8 * 0x1p-24;
    case PD_STORE_BF16: return 8 * 0x1p-9;
    case PD_STORE_F16: return 8 * 0x1p-12;
    case PD_STORE_INT8: return 8.0 / 127 / 2 + 1e-6;
    case PD_STORE_INT16: return 8.0 / 32767 / 2 + 1e-6;
    case PD_STORE_F64: return 0;
    }
    return 0;
}

static void fill_numbers(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 7 * sin((double)(i + 1) * 1.3) + 0.3;
}

static void assert_near(const double *x, const double *y, int64_t n, double distance)
{
    for (int64_t i = 0; i < n; i++) assert_true(fabs(x[i] - y[i]) <= distance);
}

TEST(what_was_written_is_read_as_its_storage_rounds_it)
{
    double in[N], out[N];

    fill_numbers(in, N);
    for
        EACH_STORAGE
        {
            pd_optim *optim = new_optim(storages[k]);
            write_slot(optim, "momentum", -1, -1, in);
            read_slot(optim, "momentum", -1, -1, out);
            assert_near(in, out, N, rounding_of(storages[k]));
            if (storages[k] == PD_STORE_BF16)
                for (int i = 0; i < N; i++)
                    assert_true(out[i] == (double)pd_f32_from_bf16(pd_bf16_from_f32((float)in[i])));
            pd_optim_free(optim);
        }
}

TEST(a_slot_read_by_part_is_the_slot_read_whole)
{
    double in[N], out[N];
    float whole[N];

    fill_numbers(in, N);
    for
        EACH_STORAGE
        {
            pd_optim *optim = new_optim(storages[k]);
            write_slot(optim, "momentum", -1, -1, in);
            read_slot(optim, "momentum", -1, -1, out);
            pd_optim_read_slot(optim, WIDE_MOMENTUM, whole);
            for (int i = 0; i < N; i++) assert_true(whole[i] == (float)out[i]);
            pd_optim_free(optim);
        }
}

/* Reads a slot block by block: each block has the elements of its place in the whole slot. */
TEST(the_boxes_of_a_whole_slot_are_its_blocks)
{
    double whole[N], dense[N];

    for
        EACH_STORAGE
        {
            pd_optim *optim = new_optim(storages[k]);
            const pd_plan *plan = pd_optim_plan(optim);
            fill_numbers(whole, N);
            write_slot(optim, "momentum", -1, -1, whole);
            read_slot(optim, "momentum", -1, -1, whole);
            for (int b = 0; b < (int)plan->n_blocks; b++) {
                const pd_block *box = &plan->blocks[b];
                read_slot(optim, "momentum", -1, b, dense);
                for (int64_t i = 0; i < box->size[0] * box->size[1]; i++)
                    assert_true(dense[i] ==
                                whole[(box->start[0] + i / box->size[1]) * COLS + box->start[1] + i % box->size[1]]);
            }
            pd_optim_free(optim);
        }
}

TEST(writing_a_box_leaves_what_lies_beside_it)
{
    for
        EACH_STORAGE
        {
            pd_optim *optim = new_optim(storages[k]);
            const pd_block *box = &pd_optim_plan(optim)->blocks[2];
            double before[N], after[N], in[N], expected[N];
            fill_numbers(before, N);
            write_slot(optim, "momentum", -1, -1, before);
            for (int i = 0; i < N; i++) in[i] = -1 - i;
            write_slot(optim, "momentum", -1, 2, in);
            read_slot(optim, "momentum", -1, -1, after);
            memcpy(expected, before, sizeof expected);
            for (int64_t i = 0; i < box->size[0] * box->size[1]; i++)
                expected[(box->start[0] + i / box->size[1]) * COLS + box->start[1] + i % box->size[1]] = in[i];
            assert_near(after, expected, N, 2 * rounding_of(storages[k]));
            pd_optim_free(optim);
        }
}

TEST(of_a_symmetric_slot_the_lower_half_counts)
{
    double in[9] = { 1, 70, 71, 2, 3, 72, 4, 5, 6 }, out[9], expected[9] = { 1, 2, 4, 2, 3, 5, 4, 5, 6 };
    pd_optim *optim = new_optim(PD_STORE_F32);

    write_slot(optim, "statistics", 0, 1, in);
    read_slot(optim, "statistics", 0, 1, out);
    assert_memory_equal(out, expected, sizeof out);
    pd_optim_free(optim);
}

static int plan_halves(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_slot_spec half = {
        .name = "half", .number = -1, .shape = declaration->shape, .storage = PD_STORE_INT16, .symmetric = true
    };

    (void)stats, (void)err;
    return pd_plan_slot(plan, &half) < 0 ? PD_NO_MEMORY : PD_OK;
}

static void stay(const pd_unit *unit)
{
    (void)unit;
}

static const pd_hyper no_hypers[] = { { .name = NULL } };
static const pd_optimizer_ops half_row = {
    .name = "half", .hypers = no_hypers, .plan = plan_halves, .phases = { { "stay", PD_WHOLE, stay, { 0 }, NULL } }
};

/* Huge values in the upper half of a symmetric slot do not widen its quantization buckets: only the lower half is
 * used. */
TEST(of_a_symmetric_slot_with_buckets_too)
{
    pd_declaration declaration = { .name = "w", .shape = { 2, { 3, 3 } } };
    double in[9] = { 1, 7e30, 7e31, 2, 3, -7e32, 4, 5, 6 }, out[9], expected[9] = { 1, 2, 4, 2, 3, 5, 4, 5, 6 };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, &half_row);
    assert_int_equal(pd_optim_new(&optim, &declaration, no_stats, NULL), PD_OK);
    write_slot(optim, "half", -1, -1, in);
    read_slot(optim, "half", -1, -1, out);
    assert_near(out, expected, 9, 6.0 / 32767);
    pd_optim_free(optim);
}

TEST(a_part_of_a_slot_with_buckets_is_not_written_without_memory)
{
    double in[N], before[N], after[N];
    pd_optim *optim = new_optim(PD_STORE_INT8);
    pd_part part = part_of(optim, "momentum", -1, 0);
    int rc;

    fill_numbers(in, N);
    write_slot(optim, "momentum", -1, -1, in);
    read_slot(optim, "momentum", -1, -1, before);
    oom_arm(0);
    rc = pd_optim_write_part(optim, &part, (double[9]){ 0 });
    assert_true(oom_disarm());
    assert_int_equal(rc, PD_NO_MEMORY);
    read_slot(optim, "momentum", -1, -1, after);
    assert_memory_equal(before, after, sizeof after);
    pd_optim_free(optim);
}

TEST(a_step_goes_on_from_what_was_written)
{
    float W[2][N] = { { 0 } }, G[N];
    pd_optim *optim[2] = { new_optim(PD_STORE_F16), new_optim(PD_STORE_F16) };
    const pd_plan *plan = pd_optim_plan(optim[0]);
    double values[N];

    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < N; i++) G[i] = cosf((float)(i + s));
        for (int o = s < 2 ? 1 : 0; o < 2; o++) {
            assert_int_equal(pd_optim_begin(optim[o], &(pd_step_io){ .gradient = G, .before = W[o], .after = W[o] }),
                             PD_OK);
            while (!pd_optim_done(optim[o])) {
                assert_int_equal(pd_batch_run(&optim[o], 1, 1), PD_OK);
                for (pd_task *task; (task = pd_optim_capture(optim[o])) != NULL; pd_optim_deliver(optim[o], task))
                    pd_task_run(task);
            }
        }
        if (s != 1) continue;
        for (size_t i = 0; i < plan->n_slots; i++) {
            const pd_slot_spec *spec = &plan->slots[i];
            if (spec->temporary) continue;
            read_slot(optim[1], spec->name, spec->number, spec->of_block ? spec->block : -1, values);
            write_slot(optim[0], spec->name, spec->number, spec->of_block ? spec->block : -1, values);
        }
        pd_optim_set_count(optim[0], 2);
        memcpy(W[0], W[1], sizeof W[0]);
    }
    assert_memory_equal(W[0], W[1], sizeof W[0]);
    pd_optim_free(optim[0]);
    pd_optim_free(optim[1]);
}
