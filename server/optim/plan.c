/* plan.c - appends slots, preconditioner tasks and blocks to the plan of a parameter's optimizer, and computes their
 * sizes. */
#include "plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more entry in an array of n entries, and returns the array. The capacity doubles: 4, 8, 16 ...
 * NULL: out of memory; the array is unchanged then. */
static void *grown(void *at, size_t n, size_t size)
{
    if (n != 0 && (n < 4 || (n & (n - 1)) != 0)) return at;
    return realloc(at, (n == 0 ? 4 : 2 * n) * size);
}

int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec)
{
    pd_slot_spec *slots = grown(plan->slots, plan->n_slots, sizeof *slots);

    if (slots == NULL) return PD_NO_MEMORY;
    plan->slots = slots;
    slots[plan->n_slots] = *spec;
    plan->n_lasting += !spec->temporary;
    return (int)plan->n_slots++;
}

int pd_plan_task(pd_plan *plan, const pd_task_spec *spec)
{
    pd_task_spec *tasks = grown(plan->tasks, plan->n_tasks, sizeof *tasks);

    if (tasks == NULL) return PD_NO_MEMORY;
    plan->tasks = tasks;
    tasks[plan->n_tasks] = *spec;
    return (int)plan->n_tasks++;
}

int pd_plan_blocks(pd_plan *plan, int64_t block_size)
{
    int64_t n = pd_partition_count(&plan->shape, block_size);

    if (n > INT_MAX) return PD_NO_MEMORY;
    plan->blocks = calloc(n > 0 ? (size_t)n : 1, sizeof *plan->blocks);
    if (plan->blocks == NULL) return PD_NO_MEMORY;
    plan->n_blocks = (size_t)n;
    for (int64_t i = 0; i < n; i++) plan->blocks[i] = pd_partition_block(&plan->shape, block_size, i);
    return PD_OK;
}

void pd_plan_free(pd_plan *plan)
{
    free(plan->blocks);
    free(plan->slots);
    free(plan->tasks);
    free(plan->own);
    memset(plan, 0, sizeof *plan);
}

bool pd_slot_is_coded(const pd_slot_spec *spec)
{
    return !spec->temporary && spec->storage != PD_STORE_F32 && spec->storage != PD_STORE_F64;
}

/* The product below cannot overflow: pd_shape_elements refuses a shape whose elements would not fit at 8 bytes each. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec)
{
    int64_t elements, size = spec->storage == PD_STORE_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);

    return pd_shape_elements(&spec->shape, &elements) == PD_OK ? elements * size : INT64_MAX;
}

/* pd_shape_elements cannot fail here: plan_make.c has refused every shape whose elements cannot be counted. */
int64_t pd_slot_elements(const pd_slot_spec *spec)
{
    int64_t elements = 0;

    (void)pd_shape_elements(&spec->shape, &elements);
    return elements;
}

int64_t pd_slot_item_elements(const pd_slot_spec *spec)
{
    return spec->shape.dim[0] == 0 ? 0 : pd_slot_elements(spec) / spec->shape.dim[0];
}

int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot)
{
    const pd_slot_spec *spec = &plan->slots[slot];

    switch (spec->share) {
    case PD_SHARE_WHOLE: return pd_slot_elements(spec);
    case PD_SHARE_BOX: return pd_block_elements(&plan->blocks[task->block], plan->shape.rank);
    case PD_SHARE_ITEM: return pd_slot_item_elements(spec);
    }
    return 0;
}

int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot)
{
    const pd_slot_spec *spec = &plan->slots[slot];

    return spec->share == PD_SHARE_WHOLE ? pd_slot_seen_bytes(spec)
                                         : pd_task_elements(plan, task, slot) * (int64_t)sizeof(float);
}

char *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size)
{
    int used = spec->of_block ? snprintf(text, size, "block_%d.", spec->block) : 0;

    if (used < 0 || (size_t)used >= size) return text;
    if (spec->number < 0)
        snprintf(text + used, size - (size_t)used, "%s", spec->name);
    else
        snprintf(text + used, size - (size_t)used, "%s.%d", spec->name, spec->number);
    return text;
}

void pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols)
{
    *rows = spec->shape.rank > 0 ? spec->shape.dim[0] : 1;
    *cols = 1;
    for (int d = 1; d < spec->shape.rank; d++) *cols *= spec->shape.dim[d];
}

int64_t pd_plan_most_units(const pd_plan *plan)
{
    int64_t ranges = plan->elements / plan->range_elements + 1, most = ranges;

    if ((int64_t)plan->n_blocks * plan->stripes > most) most = (int64_t)plan->n_blocks * plan->stripes;
    if ((int64_t)plan->n_tasks > most) most = (int64_t)plan->n_tasks;
    if ((int64_t)plan->n_slots > most) most = (int64_t)plan->n_slots;
    return most;
}

int pd_plan_slots(pd_plan *plan, const char *const *names)
{
    int slot = 0;

    for (; *names != NULL && slot >= 0; names++)
        slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = *names, .number = -1, .shape = plan->shape });
    return slot < 0 ? slot : PD_OK;
}

int pd_plan_number(pd_plan *plan, const char *name, float fill)
{
    int slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = name,
                                                   .number = -1,
                                                   .shape = { 1, { 1 } },
                                                   .fill = fill,
                                                   .follows_known = true,
                                                   .follows = { -1 } });

    return slot < 0 ? slot : PD_OK;
}

int64_t pd_statistics_count(const pd_plan *plan)
{
    return (int64_t)plan->n_blocks * plan->shape.rank;
}

int64_t pd_statistics_side(const pd_plan *plan, int64_t number)
{
    return plan->blocks[number / plan->shape.rank].size[number % plan->shape.rank];
}
