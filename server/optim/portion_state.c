/* portion_state.c - copies the state of a parameter's optimizer to that of a portion of the parameter, and back: slot
 * by slot and task by task, in the types in which they are stored. */
#include "portion_state.h"

#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "plan_bytes.h"
#include "quantize.h"
#include "stored.h"
#include "task.h"

void pd_optim_unload(pd_optim *optim)
{
    pd_tasks_free(optim);
    free(optim->saved.state);
    optim->saved.state = NULL;
    memset(optim->slot, 0, optim->shared->plan.n_slots * sizeof *optim->slot);
}

int pd_optim_load(pd_optim *optim)
{
    float **slots = optim->slot;

    if (pd_slots_make(optim) != PD_OK) {
        free(optim->slot);
        optim->slot = slots;
        return PD_NO_MEMORY;
    }
    free(slots);
    if (optim->memory.state_bytes > 0) memset(optim->saved.state, 0, (size_t)optim->memory.state_bytes);
    return PD_OK;
}

/* Two optimizers, between which state is copied. */
typedef struct pairing {
    pd_optim *whole, *portion;
    bool joins;    /* from the portion to the whole; false: the other way */
    int64_t row;   /* the portion's first row in the whole parameter */
    int64_t block; /* index of the portion's first block among the whole parameter's */
    size_t task;   /* index of its first task */
    size_t *slots; /* for each slot of the portion the index of its slot in the whole parameter */
    pd_error *err;
} pairing;

static const pd_plan *plan_of(const pd_optim *optim)
{
    return &optim->shared->plan;
}

static int misfit(const pairing *p, const char *what)
{
    return pd_fail(p->err, PD_INTERNAL, "%.160s: the %s of a portion do not fit those of the parameter", p->whole->name,
                   what);
}

/* ---- finding what belongs together ---- */

/* Finds the block of the whole parameter that is the portion's first one, and checks that the portion's blocks follow
 * each other there. */
static int find_blocks(pairing *p)
{
    const pd_plan *whole = plan_of(p->whole), *portion = plan_of(p->portion);
    int rank = whole->shape.rank;

    while ((size_t)p->block < whole->n_blocks && whole->blocks[p->block].start[0] < p->row) p->block++;
    for (size_t b = 0; b < portion->n_blocks; b++) {
        pd_block block = portion->blocks[b];
        if (rank > 0) block.start[0] += p->row;
        if (portion->shape.rank != rank || (size_t)p->block + b >= whole->n_blocks ||
            memcmp(block.start, whole->blocks[(size_t)p->block + b].start, (size_t)rank * sizeof *block.start) != 0 ||
            memcmp(block.size, whole->blocks[(size_t)p->block + b].size, (size_t)rank * sizeof *block.size) != 0)
            return misfit(p, "blocks");
    }
    return PD_OK;
}

/* Returns whether a slot belongs to one block: as its part, or as a statistic, which the number of its block and
 * dimension numbers (pd_statistics_count). */
static bool is_of_block(const pd_slot_spec *spec)
{
    return spec->of_block || spec->number >= 0;
}

static bool is_same_slot(const pairing *p, const pd_slot_spec *own, const pd_slot_spec *whole)
{
    int64_t number = own->number;

    if (!own->of_block && number >= 0) number += p->block * plan_of(p->whole)->shape.rank;
    return strcmp(own->name, whole->name) == 0 && number == whole->number && own->of_block == whole->of_block &&
           own->storage == whole->storage && own->diagonal_apart == whole->diagonal_apart &&
           own->temporary == whole->temporary && (!own->of_block || own->block + p->block == whole->block);
}

/* Finds the slots of the whole parameter that are the portion's. Both lists have the same order. */
static int find_slots(pairing *p)
{
    const pd_plan *whole = plan_of(p->whole), *portion = plan_of(p->portion);
    size_t at = 0;

    if ((p->slots = calloc(portion->n_slots + 1, sizeof *p->slots)) == NULL)
        return pd_fail(p->err, PD_NO_MEMORY, "%.160s: out of memory", p->whole->name);
    for (size_t i = 0; i < portion->n_slots; i++) {
        while (at < whole->n_slots && !is_same_slot(p, &portion->slots[i], &whole->slots[at])) at++;
        if (at == whole->n_slots) return misfit(p, "slots");
        p->slots[i] = at++;
    }
    return PD_OK;
}

static bool is_same_task(const pairing *p, const pd_task_spec *own, const pd_task_spec *whole)
{
    bool same = own->n_inputs == whole->n_inputs && own->n_outputs == whole->n_outputs;

    for (int k = 0; same && k < own->n_inputs; k++) same = p->slots[own->input[k]] == (size_t)whole->input[k];
    for (int k = 0; same && k < own->n_outputs; k++) same = p->slots[own->output[k]] == (size_t)whole->output[k];
    return same;
}

static int find_tasks(pairing *p)
{
    const pd_plan *whole = plan_of(p->whole), *portion = plan_of(p->portion);

    if (portion->n_tasks == 0) return PD_OK;
    while (p->task < whole->n_tasks && !is_same_task(p, &portion->tasks[0], &whole->tasks[p->task])) p->task++;
    for (size_t t = 0; t < portion->n_tasks; t++)
        if (p->task + t >= whole->n_tasks || !is_same_task(p, &portion->tasks[t], &whole->tasks[p->task + t]))
            return misfit(p, "tasks");
    return PD_OK;
}

/* ---- slots ---- */

/* Returns the memory of a slot as it is stored. */
static char *memory_of(const pd_optim *optim, size_t slot)
{
    const pd_quantized *codes = pd_slot_codes(optim, (int)slot);

    return codes != NULL ? codes->codes : (void *)optim->slot[slot];
}

/* Returns the size of that memory, without gaps after it. */
static size_t bytes_of(const pd_slot_spec *spec)
{
    int64_t rows, cols;

    if (!pd_slot_is_coded(spec)) return (size_t)pd_slot_bytes(spec);
    pd_slot_sides(spec, &rows, &cols);
    return (size_t)pd_quantized_room(spec->storage, spec->diagonal_apart, rows, cols);
}

/* Finds the bytes of a portion's slot in the slot of the whole parameter: from *offset on, *bytes of them. *shared: the
 * slots of all portions are the whole slot. */
static int place_slot(const pairing *p, const pd_slot_spec *own, const pd_slot_spec *whole, size_t *offset,
                      size_t *bytes, bool *shared)
{
    int64_t elements = pd_slot_elements(whole), row;

    *offset = 0;
    *bytes = bytes_of(own);
    *shared = !is_of_block(own);
    if (pd_shape_equal(&own->shape, &whole->shape)) return PD_OK;
    *shared = false;
    if (is_of_block(own) || own->share == PD_SHARE_ITEM || own->storage == PD_STORE_INT8 ||
        own->storage == PD_STORE_INT16 || own->shape.rank != whole->shape.rank || own->shape.rank == 0 ||
        elements != plan_of(p->whole)->elements || whole->shape.dim[0] < p->row + own->shape.dim[0])
        return misfit(p, "slots");
    row = elements / whole->shape.dim[0];
    if (pd_slot_elements(own) != row * own->shape.dim[0]) return misfit(p, "slots");
    *bytes = (size_t)pd_slot_bytes(own);
    *offset = *bytes / (size_t)own->shape.dim[0] * (size_t)p->row;
    return PD_OK;
}

static int copy_slot(const pairing *p, size_t i)
{
    const pd_slot_spec *own = &plan_of(p->portion)->slots[i], *whole = &plan_of(p->whole)->slots[p->slots[i]];
    char *here, *there, name[128];
    size_t offset, bytes;
    bool shared;
    int rc = own->temporary ? PD_OK : place_slot(p, own, whole, &offset, &bytes, &shared);

    if (rc != PD_OK || own->temporary || bytes == 0) return rc;
    here = memory_of(p->portion, i);
    there = memory_of(p->whole, p->slots[i]) + offset;
    if (!p->joins)
        memcpy(here, there, bytes);
    else if (!shared || p->row == 0)
        memcpy(there, here, bytes);
    else if (memcmp(there, here, bytes) != 0)
        return pd_fail(p->err, PD_DATA_LOSS, "%.160s: its portions differ in %s, which must be the same in all",
                       p->whole->name, pd_slot_name(own, name, sizeof name));
    return PD_OK;
}

/* ---- counts and tasks ---- */

/* Copies the counts. Those of tasks stay in the first portion: what is shown to people is the sum over all portions. A
 * step that waits for tasks of several portions has waited once. */
static int copy_counts(const pairing *p)
{
    pd_optim_saved *whole = &p->whole->saved, *portion = &p->portion->saved;
    double error = portion->stats.last_error, ms = portion->stats.last_cost_ms;

    if (!p->joins) {
        portion->count = whole->count;
        portion->stats = p->row == 0 ? whole->stats : (pd_root_stats){ 0 };
    } else if (p->row == 0) {
        whole->count = portion->count;
        whole->stats = portion->stats;
    } else {
        if (whole->count != portion->count)
            return pd_fail(p->err, PD_DATA_LOSS, "%.160s: its portions have counted %lld and %lld steps",
                           p->whole->name, (long long)whole->count, (long long)portion->count);
        whole->stats.due += portion->stats.due;
        whole->stats.adopted += portion->stats.adopted;
        whole->stats.failed += portion->stats.failed;
        if (portion->stats.waits > whole->stats.waits) whole->stats.waits = portion->stats.waits;
        whole->stats.replaced += portion->stats.replaced;
        whole->stats.dropped += portion->stats.dropped;
        if (error > whole->stats.last_error) whole->stats.last_error = error;
        if (ms > whole->stats.last_cost_ms) whole->stats.last_cost_ms = ms;
    }
    return PD_OK;
}

/* Adds a copy of a task, whose results are there but not adopted yet. */
static int copy_task(const pairing *p, pd_optim *to, const pd_task *task, size_t index)
{
    const pd_plan *plan = plan_of(to);
    const pd_task_spec *spec = &plan->tasks[index];
    pd_task *copy = pd_tasks_add_back(to, index, task->view.count);

    if (copy == NULL) return pd_fail(p->err, PD_NO_MEMORY, "%.160s: out of memory for a root", p->whole->name);
    memcpy(copy->hyper, task->hyper, sizeof copy->hyper);
    copy->status = task->status;
    copy->ms = task->ms;
    copy->view.unfit = task->view.unfit;
    copy->view.error = task->view.error;
    copy->view.condition = task->view.condition;
    for (int k = 0; task->status == PD_OK && k < spec->n_outputs; k++)
        memcpy(copy->output[k], task->output[k], (size_t)pd_task_share_bytes(plan, spec, spec->output[k]));
    return PD_OK;
}

static int copy_tasks(const pairing *p)
{
    const pd_optim *from = p->joins ? p->portion : p->whole;
    pd_optim *to = p->joins ? p->whole : p->portion;
    size_t n = plan_of(p->portion)->n_tasks;
    int rc = PD_OK;

    if (n == 0) return PD_OK;
    memcpy(to->saved.roots + (p->joins ? p->task : 0), from->saved.roots + (p->joins ? 0 : p->task),
           n * sizeof *to->saved.roots);
    for (const pd_pending_task *at = from->saved.oldest; rc == PD_OK && at != NULL; at = at->next) {
        if (p->joins)
            rc = copy_task(p, to, at->task, p->task + at->index);
        else if (at->index >= p->task && at->index < p->task + n)
            rc = copy_task(p, to, at->task, at->index - p->task);
    }
    return rc;
}

static int copy(pairing *p)
{
    int rc = find_blocks(p);

    if (rc == PD_OK) rc = find_slots(p);
    if (rc == PD_OK) rc = find_tasks(p);
    if (rc == PD_OK) rc = copy_counts(p);
    for (size_t i = 0; rc == PD_OK && i < plan_of(p->portion)->n_slots; i++) rc = copy_slot(p, i);
    if (rc == PD_OK) rc = copy_tasks(p);
    free(p->slots);
    return rc;
}

int pd_optim_cut(pd_optim *portion, const pd_optim *whole, int64_t row, pd_error *err)
{
    return copy(&(pairing){ .whole = (pd_optim *)(uintptr_t)whole, .portion = portion, .row = row, .err = err });
}

int pd_optim_join(pd_optim *whole, const pd_optim *portion, int64_t row, pd_error *err)
{
    return copy(
        &(pairing){ .whole = whole, .portion = (pd_optim *)(uintptr_t)portion, .joins = true, .row = row, .err = err });
}
