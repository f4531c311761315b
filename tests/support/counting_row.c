/* counting_row.c - an optimizer whose step counter belongs to a group of parameters, and which may refuse a step. */
#include "counting_row.h"

#include <math.h>

enum { SLOT_FIRST, SLOT_ROOT };

static const pd_hyper counting_hypers[] = {
    { "lr", PD_REAL, 1, 0, INFINITY, NULL, "learning rate", true, false },
    { "counts_empty", PD_FLAG, 0, 0, 1, NULL, "steps without a gradient count", false, false },
    { .name = NULL },
};

static int counting_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_task_spec task = { .n_inputs = 1, .n_outputs = 1, .input = { SLOT_FIRST }, .output = { SLOT_ROOT }, .cost = 1 };

    (void)declaration, (void)stats, (void)err;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "first", .number = -1 }) < 0) return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = -1 }) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static void note_first(const pd_unit *unit)
{
    *unit->slot[SLOT_FIRST] = unit->gradient[0];
}

static void move(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        unit->after[i] = unit->before[i] - (float)unit->hyper[0] * (float)unit->count * unit->gradient[i];
}

static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)hyper, (void)count, (void)slot;
    return true;
}

static int counting_task(pd_task_view *task)
{
    if (*task->input[0] > COUNTING_LIMIT) return PD_OUT_OF_RANGE;
    *task->output[0] = *task->input[0];
    return PD_OK;
}

static int refuse(const pd_task_view *task, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION, "the root of step %lld is too large", (long long)task->count);
}

static bool counts_empty(const double *hyper)
{
    return hyper[1] != 0;
}

const pd_optimizer_ops counting_row = {
    .name = "counting",
    .about = "for tests: counts by group, and refuses",
    .hypers = counting_hypers,
    .plan = counting_plan,
    .phases = { { .name = "note", .kind = PD_WHOLE, .run = note_first },
                { .name = "move", .kind = PD_RANGES, .run = move } },
    .capture_phase = 1,
    .adopt_phase = 1,
    .due = always,
    .task = counting_task,
    .refusal = refuse,
    .counts_by_group = true,
    .counts_empty = counts_empty,
};

const pd_optimizer_ops *const *counting_rows(void)
{
    static const pd_optimizer_ops *rows[4];

    rows[0] = &counting_row;
    rows[1] = pd_optim_find("sgd");
    rows[2] = pd_optim_find("adam");
    return rows;
}
