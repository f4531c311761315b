#include "plan.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition.h"
#include "state.h"

enum { PADDING = 60 };                  /* before a tensor that begins at a multiple of 64 bytes, at most */

/* Room for one more in an array that doubles: 4, 8, 16 ... NULL: out of memory, and the array is as it was. */
static void *room(void *at, size_t n, size_t size)
{
    if (n != 0 && (n < 4 || (n & (n - 1)) != 0)) return at;
    return realloc(at, (n == 0 ? 4 : 2 * n) * size);
}

int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec)
{
    pd_slot_spec *slots = room(plan->slots, plan->n_slots, sizeof *slots);

    if (slots == NULL) return PD_NO_MEMORY;
    plan->slots = slots;
    slots[plan->n_slots] = *spec;
    return (int)plan->n_slots++;
}

int pd_plan_task(pd_plan *plan, const pd_task_spec *spec)
{
    pd_task_spec *tasks = room(plan->tasks, plan->n_tasks, sizeof *tasks);

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
    memset(plan, 0, sizeof *plan);
}

static int64_t plus(int64_t bytes, int64_t more)
{
    return more == INT64_MAX || __builtin_add_overflow(bytes, more, &bytes) ? INT64_MAX : bytes;
}

bool pd_slot_is_coded(const pd_slot_spec *spec)
{
    return !spec->temporary && spec->storage != PD_STORE_F32 && spec->storage != PD_STORE_F64;
}

/* pd_shape_elements has made sure that 8 bytes an element fit. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec)
{
    int64_t elements, size = spec->storage == PD_STORE_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);

    return pd_shape_elements(&spec->shape, &elements) == PD_OK ? elements * size : INT64_MAX;
}

/* pd_shape_elements fails for a shape alone that is_sound has not let through. */
static int64_t elements_of(const pd_slot_spec *spec)
{
    int64_t elements = 0;

    (void)pd_shape_elements(&spec->shape, &elements);
    return elements;
}

int64_t pd_slot_item_elements(const pd_slot_spec *spec)
{
    return spec->shape.dim[0] == 0 ? 0 : elements_of(spec) / spec->shape.dim[0];
}

int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot)
{
    const pd_slot_spec *spec = &plan->slots[slot];

    switch (spec->share) {
    case PD_SHARE_WHOLE: return elements_of(spec);
    case PD_SHARE_BOX:   return pd_block_elements(&plan->blocks[task->block], plan->shape.rank);
    case PD_SHARE_ITEM:  return pd_slot_item_elements(spec);
    }
    return 0;
}

int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot)
{
    const pd_slot_spec *spec = &plan->slots[slot];

    return spec->share == PD_SHARE_WHOLE ? pd_slot_seen_bytes(spec) : pd_task_elements(plan, task, slot) * (int64_t)sizeof(float);
}

int64_t pd_slot_bytes(const pd_slot_spec *spec)
{
    int64_t bytes = pd_slot_seen_bytes(spec), rows, cols;

    if (spec->temporary) return 0;
    if (!pd_slot_is_coded(spec) || bytes == INT64_MAX) return bytes;
    pd_slot_sides(spec, &rows, &cols);
    return pd_quantized_bytes(spec->storage, spec->diagonal_apart, rows, cols);
}

char *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size)
{
    int used = spec->of_block ? snprintf(text, size, "block_%d.", spec->block) : 0;

    if (used < 0 || (size_t)used >= size) return text;
    if (spec->number < 0) snprintf(text + used, size - (size_t)used, "%s", spec->name);
    else snprintf(text + used, size - (size_t)used, "%s.%d", spec->name, spec->number);
    return text;
}

void pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols)
{
    *rows = spec->shape.rank > 0 ? spec->shape.dim[0] : 1;
    *cols = 1;
    for (int d = 1; d < spec->shape.rank; d++) *cols *= spec->shape.dim[d];
}

int64_t pd_plan_state_bytes(const pd_plan *plan)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < plan->n_slots && bytes < INT64_MAX; i++) bytes = plus(bytes, pd_slot_bytes(&plan->slots[i]));
    return bytes;
}

int64_t pd_plan_task_bytes(const pd_plan *plan)
{
    int64_t bytes = 0;

    for (size_t t = 0; t < plan->n_tasks && bytes < INT64_MAX; t++) {
        const pd_task_spec *task = &plan->tasks[t];
        for (int k = 0; k < task->n_inputs; k++) bytes = plus(bytes, pd_task_share_bytes(plan, task, task->input[k]));
        for (int k = 0; k < task->n_outputs; k++) bytes = plus(bytes, pd_task_share_bytes(plan, task, task->output[k]));
    }
    return bytes;
}

int64_t pd_plan_task_scratch(const pd_plan *plan, double most_cost)
{
    int64_t most = 0;

    for (size_t t = 0; t < plan->n_tasks; t++)
        if (plan->tasks[t].cost <= most_cost && plan->tasks[t].scratch > most) most = plan->tasks[t].scratch;
    return most;
}

int64_t pd_plan_step_bytes(const pd_plan *plan)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < plan->n_slots && bytes < INT64_MAX; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        bool in_step = spec->temporary ? !spec->in_after : pd_slot_is_coded(spec) && !spec->blockwise;
        if (in_step) bytes = plus(bytes, pd_slot_seen_bytes(spec));
    }
    return bytes;
}

int pd_plan_thread_bytes(const pd_plan *plan, int64_t *bytes)
{
    int64_t *forms = calloc(plan->n_blocks + 1, sizeof *forms), most = 0;

    if (forms == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!pd_slot_is_coded(spec) || !spec->blockwise) continue;
        forms[spec->block] = plus(forms[spec->block], pd_slot_seen_bytes(spec));
        if (forms[spec->block] > most) most = forms[spec->block];
    }
    free(forms);
    *bytes = plus(most, (int64_t)(plan->scratch_floats * sizeof(float)));
    return PD_OK;
}

/* Returns the most bytes that an array of n entries takes: it grows by doubling, so up to half of it may be unused. */
static int64_t array_bytes(size_t n, size_t size) { return n == 0 ? 0 : pd_block_bytes((int64_t)((n < 4 ? 4 : 2 * n) * size)); }

/* What a batch keeps of the units of one stage of a step. */
static int64_t batch_bytes(const pd_plan *plan)
{
    return pd_block_bytes((pd_plan_most_units(plan) + 1) * (int64_t)sizeof(double[PD_MAX_PARTIALS]) + 64);
}

/* What tasks that are out take, beside what is copied for them: each of their tensors begins at a multiple of 64 bytes. */
static int64_t task_bytes(const pd_plan *plan)
{
    int64_t bytes = (int64_t)plan->n_tasks * pd_task_own_bytes();

    for (size_t t = 0; t < plan->n_tasks; t++) bytes += (plan->tasks[t].n_inputs + plan->tasks[t].n_outputs) * PADDING;
    return plan->root_delay != 0 ? 2 * bytes : bytes;
}

static int64_t slot_bytes(const pd_plan *plan)
{
    int64_t bytes = (int64_t)plan->n_slots * (int64_t)(sizeof(float *) + PADDING);

    for (size_t i = 0; i < plan->n_slots; i++)
        if (pd_slot_is_coded(&plan->slots[i])) bytes += (int64_t)sizeof(pd_stored);
    return bytes;
}

int64_t pd_plan_own_bytes(const pd_plan *plan)
{
    int64_t arrays = array_bytes(plan->n_slots, sizeof *plan->slots) + array_bytes(plan->n_tasks, sizeof *plan->tasks);

    arrays += pd_block_bytes((int64_t)(plan->n_blocks * sizeof *plan->blocks));
    arrays += (int64_t)(plan->n_tasks * (sizeof(pd_root_state) + sizeof(pd_task *)));
    return pd_optim_own_bytes() + batch_bytes(plan) + arrays + slot_bytes(plan) + task_bytes(plan);
}

static bool share_is_sound(const pd_plan *plan, const pd_slot_spec *spec)
{
    if (spec->share == PD_SHARE_WHOLE) return true;
    if (spec->storage == PD_STORE_F64 || spec->blockwise || spec->symmetric || spec->of_block) return false;
    if (spec->share == PD_SHARE_BOX) return elements_of(spec) == plan->elements;
    return spec->shape.rank >= 1 && spec->shape.dim[0] == (int64_t)plan->n_blocks;
}

/* What the row's contract asks of a slot. */
static bool is_sound(const pd_plan *plan, const pd_slot_spec *spec)
{
    bool has_block = spec->block >= 0 && (size_t)spec->block < plan->n_blocks;
    int64_t elements = -1;

    if ((spec->blockwise || spec->of_block) && !has_block) return false;
    if (spec->storage == PD_STORE_F64 && (spec->blockwise || spec->in_after || spec->diagonal_apart)) return false;
    if (spec->in_after && (!spec->temporary || pd_shape_elements(&spec->shape, &elements) != PD_OK || elements != plan->elements)) return false;
    if (spec->identity && spec->shape.rank < 2) return false;
    return (!spec->symmetric || spec->shape.rank == 2) && share_is_sound(plan, spec);
}

/* Where it shares a slot with others it has a block. */
static bool task_is_sound(const pd_plan *plan, const pd_task_spec *task)
{
    bool shares = false;

    for (int k = 0; k < task->n_inputs; k++) shares = shares || plan->slots[task->input[k]].share != PD_SHARE_WHOLE;
    for (int k = 0; k < task->n_outputs; k++) shares = shares || plan->slots[task->output[k]].share != PD_SHARE_WHOLE;
    return !shares || (task->block >= 0 && (size_t)task->block < plan->n_blocks);
}

static bool all_sound(const pd_plan *plan)
{
    for (size_t i = 0; i < plan->n_slots; i++)
        if (!is_sound(plan, &plan->slots[i])) return false;
    for (size_t t = 0; t < plan->n_tasks; t++)
        if (!task_is_sound(plan, &plan->tasks[t])) return false;
    return plan->errors_slot < 0 || ((size_t)plan->errors_slot < plan->n_slots && plan->slots[plan->errors_slot].storage == PD_STORE_F32);
}

static int fill(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err)
{
    const pd_row *row = declaration->hypers.row;
    const pd_shape *shape = &declaration->shape;
    char text[192];
    int rc;

    if (row->check != NULL && (rc = row->check(&declaration->hypers, &declaration->hypers, err)) != PD_OK) return rc;
    if (pd_shape_elements(shape, &plan->elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a shape of %d dimensions %s is not possible", shape->rank,
                       shape->rank < 0 || shape->rank > PD_MAX_RANK ? "" : pd_shape_text(shape, text, sizeof text));
    plan->shape = *shape;
    plan->range_elements = PD_RANGE_ELEMENTS;
    plan->errors_slot = -1;
    return row->plan(declaration, fact, plan, err);
}

/* A number without dimensions follows none. What is shaped as the parameter follows its dimensions, unless the row says otherwise. A matrix of a block may have that shape by chance. */
static void find_followers(pd_plan *plan, const pd_shape *declared)
{
    for (size_t i = 0; i < plan->n_slots; i++) {
        pd_slot_spec *spec = &plan->slots[i];
        if (spec->shape.rank == 0) spec->follows_known = true;
        if (spec->follows_known || spec->identity || spec->symmetric || spec->blockwise || spec->of_block || !pd_shape_equal(&spec->shape, declared)) continue;
        spec->follows_known = true;
        for (int d = 0; d < declared->rank; d++) spec->follows[d] = (int8_t)d;
    }
}

int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err)
{
    const pd_row *row = declaration->hypers.row;
    pd_error why = { 0 };
    int rc;

    memset(plan, 0, sizeof *plan);
    if ((rc = fill(plan, declaration, fact, &why)) != PD_OK) {
        pd_plan_free(plan);
        return pd_fail(err, rc, "parameter %.160s: %.300s", declaration->name, rc == PD_NO_MEMORY ? "out of memory for its plan" : why.text);
    }
    find_followers(plan, &declaration->shape);
    assert(plan->range_elements > 0 && plan->root_delay >= PD_ROOT_READY);
    assert(all_sound(plan));
    assert(plan->n_tasks == 0 || (row->task != NULL && row->due != NULL));
    return PD_OK;
}
