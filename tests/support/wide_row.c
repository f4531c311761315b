/* wide_row.c - an optimizer with float64 state. */
#include "wide_row.h"

#include <math.h>

static const pd_hyper hypers[] = {
    [WIDE_STORAGE] = { "storage", PD_CHOICE, 0, 0, 0, "float32|bfloat16|int8|int16|float16|float64", "of the momentum",
                       false, false },
    [WIDE_DELAY] = { "root_delay", PD_INT, 0, -1, 8, NULL, "", false, false },
    { .name = NULL },
};

static int statistics_of(int block)
{
    return WIDE_FIRST_BLOCK + 3 * block;
}

static int plan_block(pd_plan *plan, int b)
{
    int64_t side = plan->blocks[b].size[0];
    int s = statistics_of(b);
    pd_slot_spec statistics = { .name = "statistics",
                                .number = 0,
                                .shape = { 2, { side, side } },
                                .storage = PD_STORE_F64,
                                .identity = true,
                                .fill = 2,
                                .symmetric = true,
                                .of_block = true,
                                .block = b };
    pd_slot_spec root = statistics,
                 narrow = { .name = "short", .number = -1, .shape = { 1, { side } }, .of_block = true, .block = b };

    root.name = "root";
    root.fill = 1;
    root.symmetric = false;
    if (pd_plan_slot(plan, &statistics) < 0 || pd_plan_slot(plan, &root) < 0 || pd_plan_slot(plan, &narrow) < 0)
        return PD_NO_MEMORY;
    return pd_plan_task(
        plan, &(pd_task_spec){ .block = b, .n_inputs = 1, .n_outputs = 2, .input = { s }, .output = { s + 1, s + 2 } });
}

static int plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    pd_slot_spec whole = { .number = -1, .shape = plan->shape, .storage = PD_STORE_F64 };
    pd_slot_spec direction = whole, momentum = whole, average = whole,
                 unfit = { .name = "unfit", .number = -1, .shape = { 1, { 0 } } };

    (void)stats, (void)err;
    plan->root_delay = (int)h[WIDE_DELAY];
    plan->range_elements = 7;
    if (pd_plan_blocks(plan, WIDE_SIDE) != PD_OK) return PD_NO_MEMORY;
    direction.name = "direction", direction.temporary = true;
    momentum.name = "momentum", momentum.storage = (pd_storage)h[WIDE_STORAGE];
    average.name = "average", average.fill = 0.5f;
    unfit.shape.dim[0] = (int64_t)plan->n_blocks;
    if (pd_plan_slot(plan, &direction) < 0 || pd_plan_slot(plan, &momentum) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &average) < 0 || pd_plan_slot(plan, &unfit) < 0) return PD_NO_MEMORY;
    for (size_t b = 0; b < plan->n_blocks; b++)
        if (plan_block(plan, (int)b) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

static double *wide(const pd_unit *unit, int slot)
{
    return (double *)(void *)unit->slot[slot];
}

/* Returns the index in the whole matrix of the block's element (i, k). */
static int64_t place(const pd_unit *unit, int64_t i, int64_t k)
{
    return (unit->block->start[0] + i) * unit->plan->shape.dim[1] + unit->block->start[1] + k;
}

static void update_statistics(const pd_unit *unit)
{
    int64_t m = unit->block->size[0], n = unit->block->size[1];
    double *S = wide(unit, statistics_of((int)unit->index));

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)unit->gradient[place(unit, i, k)] * (double)unit->gradient[place(unit, j, k)];
            S[i * m + j] = S[i * m + j] / 2 + sum;
        }
}

static bool every_step(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)hyper, (void)count, (void)slot;
    return true;
}

static int invert(pd_task_view *task)
{
    int64_t n = task->plan->blocks[task->spec->block].size[0];
    const double *S = (const void *)task->input[0];
    double *R = (void *)task->output[0];

    if (S[0] > 1e9) return PD_OUT_OF_RANGE;
    for (int64_t i = 0; i < n * n; i++) R[i] = 1 / (1 + fabs(S[i]));
    for (int64_t i = 0; i < n; i++) task->output[1][i] = (float)R[i * n + i];
    return PD_OK;
}

static void note(const pd_task_view *task, float *const *slot)
{
    slot[WIDE_UNFIT][task->spec->block] = (float)task->unfit;
}

static void precondition(const pd_unit *unit)
{
    int64_t m = unit->block->size[0], n = unit->block->size[1];
    const double *R = wide(unit, statistics_of((int)unit->index) + 1);

    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t j = 0; j < m; j++) sum += R[i * m + j] * (double)unit->gradient[place(unit, j, k)];
            wide(unit, WIDE_DIRECTION)[place(unit, i, k)] = sum;
        }
}

static void move(const pd_unit *unit)
{
    const double *D = wide(unit, WIDE_DIRECTION);
    double *A = wide(unit, WIDE_AVERAGE), *M = wide(unit, WIDE_MOMENTUM);
    float *short_M = unit->slot[WIDE_MOMENTUM];
    bool is_wide = unit->plan->slots[WIDE_MOMENTUM].storage == PD_STORE_F64;

    for (int64_t i = unit->first; i < unit->first + unit->n; i++) {
        A[i] = A[i] / 2 + D[i];
        if (is_wide)
            M[i] = M[i] / 2 + D[i];
        else
            short_M[i] = short_M[i] / 2 + (float)D[i];
        unit->after[i] = (float)((double)unit->before[i] - (A[i] + (is_wide ? M[i] : (double)short_M[i])) / 8);
    }
}

const pd_optimizer_ops wide_row = {
    .name = "wide",
    .hypers = hypers,
    .plan = plan,
    .capture_phase = 1,
    .adopt_phase = 1,
    .due = every_step,
    .task = invert,
    .note = note,
    .phases = { { "statistics", PD_BLOCKS, update_statistics, { 0 }, NULL },
                { "precondition", PD_BLOCKS, precondition, { 0 }, NULL },
                { "move", PD_RANGES, move, { 0 }, NULL } },
};
