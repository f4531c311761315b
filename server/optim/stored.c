/* stored.c - a parameter's slots in memory: float32 or float64 where they lie, or coded in fewer bits with a float32 form while somebody works on it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "linalg.h"
#include "pages.h"
#include "partition.h"
#include "state.h"

static const pd_slot_spec *spec_of(const pd_optim *optim, int slot)
{
    return &optim->basis->plan.slots[slot];
}

static int64_t elements_of(const pd_slot_spec *spec)
{
    int64_t n = 0;
    int rc = pd_shape_elements(&spec->shape, &n);

    assert(rc == PD_OK);
    (void)rc;
    return n;
}

/* Of the form that phases see, in floats: a float64 takes two. */
static int64_t floats_of(const pd_slot_spec *spec)
{
    return pd_floats_padded(elements_of(spec) * (spec->storage == PD_STORE_F64 ? 2 : 1));
}

/* ---- measuring ---- */

static int add(int64_t *sum, int64_t more)
{
    return more == INT64_MAX || __builtin_add_overflow(*sum, more, sum) ? PD_NO_MEMORY : PD_OK;
}

/* Bytes of state in memory, each slot at a multiple of 64. */
static int64_t room_of(const pd_slot_spec *spec)
{
    int64_t rows, cols;

    if (!pd_slot_is_coded(spec)) return floats_of(spec) * (int64_t)sizeof(float);
    pd_slot_sides(spec, &rows, &cols);
    return pd_quantized_room(spec->storage, spec->diagonal_apart, rows, cols);
}

static int measure_slot(pd_optim *optim, const pd_slot_spec *spec)
{
    int64_t floats = floats_of(spec);

    if (spec->temporary && spec->in_after) optim->after_floats += floats;
    if (spec->temporary || (pd_slot_is_coded(spec) && !spec->blockwise)) return add(&optim->temporary_floats, floats);
    return PD_OK;
}

static int by_block(const void *left, const void *right)
{
    const pd_stored *a = left, *b = right;

    return a->block != b->block ? (a->block > b->block) - (a->block < b->block) : (a->slot > b->slot) - (a->slot < b->slot);
}

static int list_stored(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;

    for (size_t i = 0; i < plan->n_slots; i++) optim->n_stored += pd_slot_is_coded(&plan->slots[i]);
    if (optim->n_stored == 0) return PD_OK;
    if ((optim->stored = calloc(optim->n_stored, sizeof *optim->stored)) == NULL) return PD_NO_MEMORY;
    for (size_t i = 0, n = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!pd_slot_is_coded(spec)) continue;
        optim->stored[n++] = (pd_stored){ .slot = (int)i, .block = spec->blockwise ? spec->block : -1 };
        optim->n_whole += !spec->blockwise;
    }
    qsort(optim->stored, optim->n_stored, sizeof *optim->stored, by_block);
    return PD_OK;
}

void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end)
{
    size_t low = optim->n_whole, high = optim->n_stored;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (optim->stored[middle].block < block) low = middle + 1;
        else high = middle;
    }
    *first = low;
    while (low < optim->n_stored && optim->stored[low].block == block) low++;
    *end = low;
}

static void measure_views(pd_optim *optim)
{
    for (size_t first = optim->n_whole, end; first < optim->n_stored; first = end) {
        int64_t floats = 0;
        pd_stored_of_block(optim, optim->stored[first].block, &first, &end);
        for (size_t i = first; i < end; i++) floats += floats_of(spec_of(optim, optim->stored[i].slot));
        if (floats > optim->view_floats) optim->view_floats = floats;
    }
}

int pd_slots_measure(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;

    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (measure_slot(optim, spec) != PD_OK) return PD_NO_MEMORY;
        if (!spec->temporary && add(&optim->state_bytes, room_of(spec)) != PD_OK) return PD_NO_MEMORY;
    }
    if (list_stored(optim) != PD_OK) return PD_NO_MEMORY;
    measure_views(optim);
    return PD_OK;
}

/* ---- the state ---- */

static void set(void *at, const pd_slot_spec *spec, int64_t i, float value)
{
    if (spec->storage == PD_STORE_F64) ((double *)at)[i] = (double)value;
    else ((float *)at)[i] = value;
}

/* Of each matrix of a stack. */
static void set_diagonals(void *at, const pd_slot_spec *spec, int64_t n)
{
    int64_t rows = spec->shape.dim[spec->shape.rank - 2], cols = spec->shape.dim[spec->shape.rank - 1];

    for (int64_t first = 0; first < n; first += rows * cols)
        for (int64_t i = 0; i < rows && i < cols; i++) set(at, spec, first + i * cols + i, spec->fill);
}

static void fill(void *at, const pd_slot_spec *spec)
{
    int64_t n = elements_of(spec);

    for (int64_t i = 0; i < n; i++) set(at, spec, i, spec->identity ? 0.0f : spec->fill);
    if (spec->identity) set_diagonals(at, spec, n);
}

static void place(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;
    char *memory = optim->state;

    for (size_t i = 0; i < plan->n_slots; i++) {
        if (plan->slots[i].temporary || pd_slot_is_coded(&plan->slots[i])) continue;
        optim->slot[i] = (float *)memory;
        memory += room_of(&plan->slots[i]);
    }
    for (size_t i = 0; i < optim->n_stored; i++) {
        const pd_slot_spec *spec = spec_of(optim, optim->stored[i].slot);
        int64_t rows, cols;
        pd_slot_sides(spec, &rows, &cols);
        optim->stored[i].codes = pd_quantized_at(memory, spec->storage, spec->diagonal_apart, rows, cols);
        memory += room_of(spec);
    }
}

/* Initial values of slots that have another form, by way of a float32 form of each. */
static int fill_stored(pd_optim *optim)
{
    int64_t most = 0;
    float *values;

    for (size_t i = 0; i < optim->n_stored; i++) {
        int64_t n = elements_of(spec_of(optim, optim->stored[i].slot));
        if (n > most) most = n;
    }
    if (most == 0) return PD_OK;
    if ((values = pd_floats_new(most)) == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < optim->n_stored; i++) {
        fill(values, spec_of(optim, optim->stored[i].slot));
        pd_quantize(&optim->stored[i].codes, values);
    }
    free(values);
    return PD_OK;
}

int pd_slots_make(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;

    if ((optim->slot = calloc(plan->n_slots + 1, sizeof *optim->slot)) == NULL) return PD_NO_MEMORY;
    if (optim->state_bytes == 0) return PD_OK;
    if ((optim->state = pd_pages_new((size_t)optim->state_bytes)) == NULL) return PD_NO_MEMORY;
    place(optim);
    for (size_t i = 0; i < plan->n_slots; i++)
        if (!plan->slots[i].temporary && !pd_slot_is_coded(&plan->slots[i])) fill(optim->slot[i], &plan->slots[i]);
    return fill_stored(optim);
}

/* ---- for the time of a step ---- */

int pd_slots_open(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;
    bool borrow = optim->io.after != optim->io.before;
    int64_t floats = optim->temporary_floats - (borrow ? optim->after_floats : 0);
    float *memory;

    if (optim->temporary_floats == 0) return PD_OK;
    if (floats > 0 && (optim->temporary = pd_floats_new(floats)) == NULL) return PD_NO_MEMORY;
    memory = optim->temporary;
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!spec->temporary && (!pd_slot_is_coded(spec) || spec->blockwise)) continue;
        optim->slot[i] = spec->in_after && borrow ? optim->io.after : memory;
        if (optim->slot[i] == memory) memory += floats_of(spec);
    }
    return PD_OK;
}

void pd_slots_close(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;

    if (optim->temporary_floats == 0) return;
    for (size_t i = 0; i < plan->n_slots; i++)
        if (plan->slots[i].temporary || pd_slot_is_coded(&plan->slots[i])) optim->slot[i] = NULL;
    free(optim->temporary);
    optim->temporary = NULL;
}

void pd_stored_open(const pd_optim *optim, size_t i)
{
    pd_dequantize(optim->slot[optim->stored[i].slot], &optim->stored[i].codes);
}

void pd_stored_close(const pd_optim *optim, size_t i)
{
    const pd_stored *stored = &optim->stored[i];

    if (!pd_quantized_holds(&stored->codes, optim->slot[stored->slot])) pd_quantize(&stored->codes, optim->slot[stored->slot]);
}

/* ---- for the time of a unit: slot[i] of a block's slots belongs to the thread that runs it ---- */

void pd_block_open(const pd_optim *optim, int64_t block, float *memory)
{
    size_t first, end;

    pd_stored_of_block(optim, block, &first, &end);
    for (size_t i = first; i < end; i++) {
        optim->slot[optim->stored[i].slot] = memory;
        pd_stored_open(optim, i);
        memory += floats_of(spec_of(optim, optim->stored[i].slot));
    }
}

void pd_block_close(const pd_optim *optim, int64_t block)
{
    size_t first, end;

    pd_stored_of_block(optim, block, &first, &end);
    for (size_t i = first; i < end; i++) {
        pd_stored_close(optim, i);
        optim->slot[optim->stored[i].slot] = NULL;
    }
}

/* ---- copies ---- */

const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot)
{
    const pd_slot_spec *spec = spec_of(optim, slot);
    size_t first = 0, end = optim->n_whole;

    if (optim->slot[slot] != NULL) return NULL;
    if (spec->blockwise) pd_stored_of_block(optim, spec->block, &first, &end);
    for (size_t i = first; i < end; i++)
        if (optim->stored[i].slot == slot) return &optim->stored[i].codes;
    return NULL;
}

static void copy(void *to, const void *from, const pd_slot_spec *spec)
{
    size_t bytes = (size_t)pd_slot_seen_bytes(spec);

    if (bytes > 0) memcpy(to, from, bytes);             /* without elements it may have no memory */
}

static void mirror(void *at, const pd_slot_spec *spec)
{
    if (spec->storage == PD_STORE_F64) pd_mirror_f64(at, spec->shape.dim[0]);
    else pd_mirror(pd_mat_dense(at, spec->shape.dim[0], spec->shape.dim[1]));
}

void pd_slot_load(const pd_optim *optim, int slot, void *to)
{
    const pd_slot_spec *spec = spec_of(optim, slot);
    const pd_quantized *codes = pd_slot_codes(optim, slot);

    if (codes != NULL) pd_dequantize(to, codes);
    else copy(to, optim->slot[slot], spec);
    if (spec->symmetric) mirror(to, spec);
}

void pd_slot_store(const pd_optim *optim, int slot, const void *from)
{
    const pd_quantized *codes = pd_slot_codes(optim, slot);

    if (codes != NULL) pd_quantize(codes, from);
    else copy(optim->slot[slot], from, spec_of(optim, slot));
}

/* ---- a task's shares of them ---- */

/* Where item b of a slot begins that a step has opened. */
static float *item_at(const pd_optim *optim, const pd_task_spec *task, int slot)
{
    return optim->slot[slot] + task->block * pd_slot_item_elements(spec_of(optim, slot));
}

static size_t item_bytes(const pd_optim *optim, int slot)
{
    return (size_t)pd_slot_item_elements(spec_of(optim, slot)) * sizeof(float);
}

void pd_share_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to)
{
    const pd_plan *plan = &optim->basis->plan;

    switch (plan->slots[slot].share) {
    case PD_SHARE_WHOLE: pd_slot_load(optim, slot, to); break;
    case PD_SHARE_BOX:   pd_block_gather(to, optim->slot[slot], &plan->shape, &plan->blocks[task->block]); break;
    case PD_SHARE_ITEM:  memcpy(to, item_at(optim, task, slot), item_bytes(optim, slot)); break;
    }
}

void pd_share_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from)
{
    const pd_plan *plan = &optim->basis->plan;

    switch (plan->slots[slot].share) {
    case PD_SHARE_WHOLE: pd_slot_store(optim, slot, from); break;
    case PD_SHARE_BOX:   pd_block_scatter(optim->slot[slot], from, &plan->shape, &plan->blocks[task->block]); break;
    case PD_SHARE_ITEM:  memcpy(item_at(optim, task, slot), from, item_bytes(optim, slot)); break;
    }
}
