/* stern_row.c - an optimizer that refuses steps. */
#include "stern_row.h"

enum { NOTHING, UNFIT, FAILURES };

static const pd_hyper hypers[] = {
    [STERN_LR] = { "lr", PD_REAL, 0.5, 0, 10, NULL, "", true },
    [STERN_STORAGE] = { "storage", PD_CHOICE, 0, 0, 0, "float32|bfloat16|int8|int16|float16", "", false },
    [STERN_DELAY] = { "root_delay", PD_INT, 0, -1, 8, "ready", "", false },
    [STERN_INTERVAL] = { "interval", PD_INT, 1, 1, 8, NULL, "", false },
    [STERN_REFUSES] = { "refuses", PD_CHOICE, UNFIT, 0, 0, "nothing|unfit|failures", "", false },
    [STERN_ROOTS] = { "roots", PD_FLAG, 1, 0, 1, NULL, "", false },
    { .name = NULL },
};

static int sum_of(int64_t block)
{
    return STERN_FIRST_BLOCK + 2 * (int)block;
}

static int plan_block(pd_plan *plan, int b, bool roots)
{
    pd_slot_spec sum = { .name = "sum", .number = -1, .storage = PD_STORE_F64, .of_block = true, .block = b };
    pd_slot_spec root = { .name = "root", .number = -1, .fill = 1, .of_block = true, .block = b };
    pd_task_spec task = {
        .block = b, .n_inputs = 1, .n_outputs = 1, .input = { sum_of(b) }, .output = { sum_of(b) + 1 }
    };

    if (pd_plan_slot(plan, &sum) < 0 || pd_plan_slot(plan, &root) < 0) return PD_NO_MEMORY;
    return roots && pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    pd_slot_spec direction = {
        .name = "direction", .number = -1, .shape = plan->shape, .temporary = true, .in_after = true
    };
    pd_slot_spec average = {
        .name = "average", .number = -1, .shape = plan->shape, .storage = (pd_storage)h[STERN_STORAGE]
    };
    pd_slot_spec seen = { .name = "seen", .number = -1 },
                 noted = { .name = "noted", .number = -1, .shape = { .rank = 1 } };

    (void)stats, (void)err;
    plan->root_delay = (int)h[STERN_DELAY];
    plan->range_elements = 3;
    if (pd_plan_blocks(plan, STERN_BLOCK) != PD_OK) return PD_NO_MEMORY;
    noted.shape.dim[0] = (int64_t)plan->n_blocks;
    if (pd_plan_slot(plan, &direction) < 0 || pd_plan_slot(plan, &average) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &seen) < 0 || pd_plan_slot(plan, &noted) < 0) return PD_NO_MEMORY;
    for (size_t b = 0; b < plan->n_blocks; b++)
        if (plan_block(plan, (int)b, h[STERN_ROOTS] != 0) != PD_OK) return PD_NO_MEMORY;
    return PD_OK;
}

static void sum_up(const pd_unit *unit)
{
    double *sum = (double *)(void *)unit->slot[sum_of(unit->index)];

    *sum = 0;
    for (int64_t i = 0; i < unit->block->size[0]; i++) *sum += (double)unit->gradient[unit->block->start[0] + i];
}

static void average(const pd_unit *unit)
{
    float *M = unit->slot[STERN_AVERAGE];

    for (int64_t i = unit->first; i < unit->first + unit->n; i++) M[i] = M[i] / 2 + unit->gradient[i];
}

static bool due(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)slot;
    return count % (int64_t)hyper[STERN_INTERVAL] == 0;
}

static int make_root(pd_task_view *task)
{
    const double *sum = (const void *)task->input[0];

    if (*sum < 0) return PD_OUT_OF_RANGE;
    task->output[0][0] = (float)(1 + *sum);
    return PD_OK;
}

static void note(const pd_task_view *task, float *const *slot)
{
    slot[STERN_NOTED][task->spec->block] = (float)(task->unfit != PD_FIT ? 100 + (int)task->unfit : task->status);
}

static int refusal(const pd_task_view *task, pd_error *err)
{
    int refuses = (int)task->hyper[STERN_REFUSES];

    if (refuses != NOTHING && task->unfit != PD_FIT)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%s in block %d", task->unfit == PD_UNFIT_NAN ? "NaN" : "infinity",
                       task->spec->block);
    return refuses == FAILURES ? pd_fail(err, task->status, "failure in block %d", task->spec->block) : PD_OK;
}

static void precondition(const pd_unit *unit)
{
    float root = *unit->slot[sum_of(unit->index) + 1];

    for (int64_t i = unit->block->start[0]; i < unit->block->start[0] + unit->block->size[0]; i++)
        unit->slot[STERN_DIRECTION][i] = root * unit->gradient[i];
}

static void move(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++) {
        float update = -(float)unit->hyper[STERN_LR] * (unit->slot[STERN_DIRECTION][i] + unit->slot[STERN_AVERAGE][i]);
        if (unit->update != NULL) unit->update[i] = update;
        unit->after[i] = unit->before[i] + update;
    }
}

static void see(const pd_unit *unit)
{
    *unit->slot[STERN_SEEN] = (float)unit->count;
}

static pd_dtype float32(const double *hyper)
{
    (void)hyper;
    return PD_F32;
}

const pd_optimizer_ops stern_row = {
    .name = "stern",
    .hypers = hypers,
    .plan = plan,
    .capture_phase = 2,
    .adopt_phase = 2,
    .due = due,
    .task = make_root,
    .note = note,
    .refusal = refusal,
    .counts_by_group = true,
    .update_dtype = float32,
    .phases = { { "sum", PD_BLOCKS, sum_up, { 0 }, NULL },
                { "average", PD_RANGES, average, { 0 }, NULL },
                { "precondition", PD_BLOCKS, precondition, { 0 }, NULL },
                { "move", PD_RANGES, move, { 0 }, NULL },
                { "see", PD_WHOLE, see, { 0 }, NULL } },
};
