/* plan_bytes.c - counts the bytes that an optimizer's plan, its state, its steps and its preconditioner tasks take. */
#include "plan_bytes.h"

#include <stdlib.h>

#include "state.h"

enum { PADDING = 60 }; /* most unused bytes before a tensor that begins at a multiple of 64 */

static int64_t plus(int64_t bytes, int64_t more)
{
    return more == INT64_MAX || __builtin_add_overflow(bytes, more, &bytes) ? INT64_MAX : bytes;
}

int64_t pd_slot_bytes(const pd_slot_spec *spec)
{
    int64_t bytes = pd_slot_seen_bytes(spec), rows, cols;

    if (spec->temporary) return 0;
    if (!pd_slot_is_coded(spec) || bytes == INT64_MAX) return bytes;
    pd_slot_sides(spec, &rows, &cols);
    return pd_quantized_bytes(spec->storage, spec->diagonal_apart, rows, cols);
}

/* Unused bytes after a large slot keep loops fast. A loop reads one element of each slot at a time, and AMD's
 * first-level cache confuses addresses whose bits 12 to 27 are equal. Slots of exactly 256 MiB would evict each other
 * from this cache, and a step would take twice as long. A gap of SPREAD bytes changes both the cache line and those
 * bits. */
int64_t pd_slot_gap(const pd_slot_spec *spec)
{
    enum { LARGE = 4 << 20, SPREAD = 4096 + 64 };

    return spec->temporary || pd_slot_is_coded(spec) || pd_slot_seen_bytes(spec) < LARGE ? 0 : SPREAD;
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

/* Returns the bytes of the results of all tasks of the plan. */
static int64_t result_bytes(const pd_plan *plan)
{
    int64_t bytes = 0;

    for (size_t t = 0; t < plan->n_tasks && bytes < INT64_MAX; t++) {
        const pd_task_spec *task = &plan->tasks[t];
        for (int k = 0; k < task->n_outputs; k++) bytes = plus(bytes, pd_task_share_bytes(plan, task, task->output[k]));
    }
    return bytes;
}

int64_t pd_plan_image_bytes(const pd_plan *plan)
{
    /* OWN: bytes of counters and names of sections. SLOT: bytes of the text that describes a slot. RECORD: bytes of a
     * pd_root_state, or of a pending task without its results */
    enum { OWN = 512, SLOT = 128, RECORD = PD_MAX_HYPERS * sizeof(double) + 128 };
    int64_t bytes = plus(pd_plan_state_bytes(plan), OWN), results = result_bytes(plan);

    for (size_t i = 0; i < plan->n_slots; i++) bytes = plus(bytes, SLOT + pd_slot_gap(&plan->slots[i]));
    bytes = plus(bytes, RECORD * (int64_t)plan->n_tasks);
    if (plan->root_delay == 0) return bytes;
    /* A root may have two tasks whose results are not used yet. */
    return plus(plus(plus(bytes, results), results), 2 * RECORD * (int64_t)plan->n_tasks);
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

/* Returns the bytes of the structs that every optimizer has, whatever state and tasks its plan lists. */
static int64_t optimizer_bytes(void)
{
    int64_t records = pd_block_bytes(sizeof(pd_optim)) + pd_block_bytes(sizeof(pd_shared_plan)) +
                      pd_block_bytes(PD_MAX_PHASES * sizeof(double[PD_MAX_PARTIALS]));

    /* overhead of the array of pointers to slots; slot_bytes counts its entries */
    records += pd_block_bytes(sizeof(float *));
    /* overhead of two allocations: the memory of the state, and that of temporary slots */
    return records + 2 * pd_pages_bytes(0);
}

/* Returns the bytes that one task takes while it is at the preconditioner pool, without its inputs and results: its
 * structs, the allocator's overhead, and the message that carries it to the pool and back (MAIL). */
static int64_t bytes_of_a_task(void)
{
    enum { MAIL = 1200 };

    return pd_block_bytes(sizeof(pd_task)) + pd_block_bytes(sizeof(pd_pending_task)) + pd_pages_bytes(0) + MAIL;
}

/* Returns the most bytes that an array of n entries takes. The array grows by doubling, so up to half of it may be
 * unused. */
static int64_t array_bytes(size_t n, size_t size)
{
    return n == 0 ? 0 : pd_block_bytes((int64_t)((n < 4 ? 4 : 2 * n) * size));
}

/* Returns the bytes that a batch needs for each unit of a phase: the numbers that it reports (pd_unit.partial), and a
 * flag. */
static int64_t batch_bytes(const pd_plan *plan)
{
    return pd_block_bytes((pd_plan_most_units(plan) + 1) * (int64_t)(sizeof(double[PD_MAX_PARTIALS]) + sizeof(bool)) +
                          64);
}

/* Returns the bytes of all tasks while they are at the preconditioner pool, without the copies of their inputs.
 * Includes the unused bytes before each tensor. */
static int64_t task_bytes(const pd_plan *plan)
{
    int64_t bytes = (int64_t)plan->n_tasks * bytes_of_a_task();

    for (size_t t = 0; t < plan->n_tasks; t++) bytes += (plan->tasks[t].n_inputs + plan->tasks[t].n_outputs) * PADDING;
    return plan->root_delay != 0 ? 2 * bytes : bytes;
}

static int64_t slot_bytes(const pd_plan *plan)
{
    int64_t bytes = (int64_t)plan->n_slots * (int64_t)(sizeof(float *) + PADDING);

    for (size_t i = 0; i < plan->n_slots; i++) {
        if (pd_slot_is_coded(&plan->slots[i])) bytes += (int64_t)sizeof(pd_stored);
        bytes += pd_slot_gap(&plan->slots[i]);
    }
    return bytes;
}

int64_t pd_plan_own_bytes(const pd_plan *plan)
{
    int64_t arrays = array_bytes(plan->n_slots, sizeof *plan->slots) + array_bytes(plan->n_tasks, sizeof *plan->tasks);

    arrays +=
        pd_block_bytes((int64_t)(plan->n_blocks * sizeof *plan->blocks)) + pd_block_bytes((int64_t)plan->own_bytes);
    arrays += (int64_t)(plan->n_tasks * (sizeof(pd_root_state) + sizeof(pd_task *)));
    return optimizer_bytes() + batch_bytes(plan) + arrays + slot_bytes(plan) + task_bytes(plan);
}
