/* stacked_row.c - an optimizer whose tasks share slots: each task has the box of its block in a slot, or an item of a
 * stack. */
#include "stacked_row.h"

#include <math.h>
#include <string.h>

#include "partition.h"

static const pd_hyper hypers[] = {
    [STACKED_BLOCK_SIZE] = { "block_size", PD_INT, 3, 0, 1 << 20, NULL, "largest dimension of a block", false },
    [STACKED_ROOT_DELAY] = { "root_delay", PD_INT, 0, PD_ROOT_READY, 8, NULL, "", false },
    [STACKED_STORAGE] = { "storage", PD_CHOICE, 0, 0, 0, "float32|bfloat16", "of factors and trace", false },
    [STACKED_THRESHOLD] = { "threshold", PD_REAL, 0, 0, INFINITY, NULL, "of the gradient's first element", false },
    { .name = NULL },
};

static int plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    pd_storage storage = (pd_storage)h[STACKED_STORAGE];
    pd_slot_spec direction = { .name = "direction",
                               .number = -1,
                               .shape = plan->shape,
                               .temporary = true,
                               .in_after = true,
                               .share = PD_SHARE_BOX };
    pd_slot_spec Q = {
        .name = "Q", .number = 0, .fill = 1.5f, .identity = true, .storage = storage, .share = PD_SHARE_ITEM
    };
    pd_slot_spec tally = { .name = "tally", .number = -1, .fill = 0.25f, .share = PD_SHARE_ITEM };
    pd_slot_spec trace = {
        .name = "trace", .number = -1, .shape = plan->shape, .storage = storage, .share = PD_SHARE_BOX
    };

    (void)stats, (void)err;
    plan->root_delay = (int)h[STACKED_ROOT_DELAY];
    plan->range_elements = 7;
    if (pd_plan_blocks(plan, (int64_t)h[STACKED_BLOCK_SIZE]) != PD_OK) return PD_NO_MEMORY;
    Q.shape = (pd_shape){ 3, { (int64_t)plan->n_blocks, STACKED_ROWS, STACKED_COLS } };
    tally.shape = (pd_shape){ 1, { (int64_t)plan->n_blocks } };
    if (pd_plan_slot(plan, &direction) < 0 || pd_plan_slot(plan, &Q) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &tally) < 0 || pd_plan_slot(plan, &trace) < 0) return PD_NO_MEMORY;
    for (size_t b = 0; b < plan->n_blocks; b++) {
        pd_task_spec task = { .block = (int)b,
                              .n_inputs = 4,
                              .input = { STACKED_Q, STACKED_DIRECTION, STACKED_TALLY, STACKED_TRACE },
                              .n_outputs = 3,
                              .output = { STACKED_TRACE, STACKED_Q, STACKED_TALLY } };
        if (pd_plan_task(plan, &task) < 0) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static void collect(const pd_unit *unit)
{
    memcpy(unit->slot[STACKED_DIRECTION] + unit->first, unit->gradient + unit->first, (size_t)unit->n * sizeof(float));
}

static bool due(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)count;
    return slot == NULL || plan->elements == 0 || (double)fabsf(slot[STACKED_DIRECTION][0]) >= hyper[STACKED_THRESHOLD];
}

static float noise(const pd_task_view *task)
{
    pd_random own = pd_random_fold(pd_random_fold(task->random, (uint64_t)task->count), (uint64_t)task->spec->block);

    if (task->draws != NULL && task->draws->normal != NULL)
        return task->draws->normal[task->spec->block] + (float)task->draws->uniform;
    return (float)(own.key[0] % 16) + (float)(pd_random_fold(task->random_of_all, (uint64_t)task->count).key[0] % 16);
}

static int share(pd_task_view *task)
{
    const float *Q = task->input[0], *X = task->input[1], *T = task->input[3];
    int64_t n = pd_block_elements(&task->plan->blocks[task->spec->block], task->plan->shape.rank);
    float s = noise(task);

    for (int64_t i = 0; i < n; i++) s += X[i];
    if (s > 1e6f) return PD_OUT_OF_RANGE;
    for (int i = 0; i < STACKED_SQUARE; i++)
        task->output[1][i] = Q[i] / 2 + (i % STACKED_COLS == i / STACKED_COLS ? s : 0);
    *task->output[2] = *task->input[2] + 1;
    for (int64_t i = 0; i < n; i++) task->output[0][i] = X[i] * task->output[1][0] - T[i] / 4;
    return PD_OK;
}

static void adopt(const pd_task_view *task, float *const *slot)
{
    const pd_plan *plan = task->plan;
    int b = task->spec->block;

    pd_block_scatter(slot[STACKED_TRACE], task->output[0], &plan->shape, &plan->blocks[b]);
    memcpy(slot[STACKED_Q] + b * pd_slot_item_elements(&plan->slots[STACKED_Q]), task->output[1],
           STACKED_SQUARE * sizeof(float));
    slot[STACKED_TALLY][b * pd_slot_item_elements(&plan->slots[STACKED_TALLY])] = *task->output[2];
}

static void move(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        unit->after[i] = unit->before[i] - (unit->slot[STACKED_DIRECTION][i] + unit->slot[STACKED_TRACE][i]) / 8;
}

static int64_t normals(const pd_plan *plan)
{
    return (int64_t)plan->n_blocks;
}

#define ROW                                                                                                            \
    .normals = normals, .name = "stacked", .hypers = hypers, .plan = plan, .capture_phase = 1, .adopt_phase = 1,       \
    .due = due, .task = share,                                                                                         \
    .phases = { { "collect", PD_RANGES, collect, { 0 }, NULL }, { "move", PD_RANGES, move, { 0 }, NULL } }

const pd_optimizer_ops stacked_row = { ROW };
const pd_optimizer_ops stacked_row_adopting = { ROW, .adopt = adopt };
