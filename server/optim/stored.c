/* stored.c - keeps the tensors of a parameter's optimizer state in memory. Float32 and float64 slots are used in place.
 * Coded slots are stored in fewer bits; they get a float32 form while a step, a unit or a preconditioner task uses
 * them. */
#include "stored.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "linalg.h"
#include "pages.h"
#include "partition.h"
#include "plan_bytes.h"
#include "stripes.h"

/* Rough times in ns to fill fresh memory with initial values on one core: SLOT_NS for each slot, FILL_NS for each
 * element of it, or CODED_NS if the tensor is stored in fewer bits than float32. */
#define SLOT_NS 100.0
#define FILL_NS 2.0
#define CODED_NS 4.0
enum { LEAST_FILL = 1 << 16 };

static const pd_slot_spec *spec_of(const pd_optim *optim, int slot)
{
    return &optim->shared->plan.slots[slot];
}

/* Returns how many floats a slot takes in the form that the phases of a step see. A float64 counts as two floats. */
static int64_t floats_of(const pd_slot_spec *spec)
{
    return pd_floats_padded(pd_slot_elements(spec) * (spec->storage == PD_STORE_F64 ? 2 : 1));
}

static int add(int64_t *sum, int64_t more)
{
    return more == INT64_MAX || __builtin_add_overflow(*sum, more, sum) ? PD_NO_MEMORY : PD_OK;
}

/* Returns how many bytes of memory a slot takes as it is stored, a multiple of 64. */
static int64_t room_of(const pd_slot_spec *spec)
{
    int64_t rows, cols, bytes = floats_of(spec) * (int64_t)sizeof(float);

    if (!pd_slot_is_coded(spec)) return bytes + pd_slot_gap(spec);
    pd_slot_sides(spec, &rows, &cols);
    return pd_quantized_room(spec->storage, spec->diagonal_apart, rows, cols);
}

static int measure_slot(pd_optim *optim, const pd_slot_spec *spec)
{
    int64_t floats = floats_of(spec);

    if (spec->temporary && spec->in_after) optim->memory.after_floats += floats;
    if (spec->temporary || (pd_slot_is_coded(spec) && !spec->blockwise))
        return add(&optim->memory.temporary_floats, floats);
    return PD_OK;
}

static int by_block(const void *left, const void *right)
{
    const pd_stored *a = left, *b = right;

    return a->block != b->block ? (a->block > b->block) - (a->block < b->block)
                                : (a->slot > b->slot) - (a->slot < b->slot);
}

static int list_stored(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    for (size_t i = 0; i < plan->n_slots; i++) optim->memory.n_stored += pd_slot_is_coded(&plan->slots[i]);
    if (optim->memory.n_stored == 0) return PD_OK;
    if ((optim->memory.stored = calloc(optim->memory.n_stored, sizeof *optim->memory.stored)) == NULL)
        return PD_NO_MEMORY;
    for (size_t i = 0, n = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!pd_slot_is_coded(spec)) continue;
        optim->memory.stored[n++] = (pd_stored){ .slot = (int)i, .block = spec->blockwise ? spec->block : -1 };
        optim->memory.n_whole += !spec->blockwise;
    }
    qsort(optim->memory.stored, optim->memory.n_stored, sizeof *optim->memory.stored, by_block);
    return PD_OK;
}

void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end)
{
    size_t low = optim->memory.n_whole, high = optim->memory.n_stored;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (optim->memory.stored[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (low < optim->memory.n_stored && optim->memory.stored[low].block == block) low++;
    *end = low;
}

static void measure_views(pd_optim *optim)
{
    for (size_t first = optim->memory.n_whole, end; first < optim->memory.n_stored; first = end) {
        int64_t floats = 0;
        pd_stored_of_block(optim, optim->memory.stored[first].block, &first, &end);
        for (size_t i = first; i < end; i++) floats += floats_of(spec_of(optim, optim->memory.stored[i].slot));
        if (floats > optim->memory.view_floats) optim->memory.view_floats = floats;
    }
}

int pd_slots_measure(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (measure_slot(optim, spec) != PD_OK) return PD_NO_MEMORY;
        if (!spec->temporary && add(&optim->memory.state_bytes, room_of(spec)) != PD_OK) return PD_NO_MEMORY;
    }
    if (list_stored(optim) != PD_OK) return PD_NO_MEMORY;
    measure_views(optim);
    return PD_OK;
}

static void set(void *at, const pd_slot_spec *spec, int64_t i, float value)
{
    if (spec->storage == PD_STORE_F64)
        ((double *)at)[i] = (double)value;
    else
        ((float *)at)[i] = value;
}

/* Sets the diagonal of each matrix in a slot that is a stack of identity matrices. */
static void set_diagonals(void *at, const pd_slot_spec *spec, int64_t n)
{
    int64_t rows = spec->shape.dim[spec->shape.rank - 2], cols = spec->shape.dim[spec->shape.rank - 1];

    for (int64_t first = 0; first < n; first += rows * cols)
        for (int64_t i = 0; i < rows && i < cols; i++) set(at, spec, first + i * cols + i, spec->fill);
}

/* Fills elements [first, end) of a slot of n elements with initial values. If `end` is n, also sets the diagonals of
 * identity matrices. */
static void fill(void *at, const pd_slot_spec *spec, int64_t first, int64_t end, int64_t n)
{
    for (int64_t i = first; i < end; i++) set(at, spec, i, spec->identity ? 0.0f : spec->fill);
    if (spec->identity && end == n) set_diagonals(at, spec, n);
}

/* Zeroes the unused bytes at the end of the memory of a slot; the memory ends at `end`. These bytes are saved with the
 * state (save.c), and so must not be random. */
static void zero_behind(const pd_slot_spec *spec, char *end)
{
    int64_t unused = room_of(spec) - pd_slot_bytes(spec);

    memset(end - unused, 0, (size_t)unused);
}

/* Zeroes the unused bytes between the end of an array and the next multiple of 64 bytes. Accepts NULL. */
static void zero_gap(void *at, int64_t bytes)
{
    if (at != NULL) memset((char *)at + bytes, 0, (size_t)(-bytes & 63));
}

/* Zeroes the unused bytes of a coded slot, for the same reason. */
static void zero_gaps(const pd_quantized *codes)
{
    int64_t size = codes->storage == PD_STORE_INT8 ? 1 : 2;

    zero_gap(codes->codes, codes->rows * codes->cols * size);
    zero_gap(codes->bucket, codes->cols * (int64_t)sizeof(float));
    zero_gap(codes->diagonal, codes->rows * (int64_t)sizeof(float));
}

static void place(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;
    char *memory = optim->saved.state;

    for (size_t i = 0; i < plan->n_slots; i++) {
        if (plan->slots[i].temporary || pd_slot_is_coded(&plan->slots[i])) continue;
        optim->slot[i] = (float *)memory;
        memory += room_of(&plan->slots[i]);
        zero_behind(&plan->slots[i], memory);
    }
    for (size_t i = 0; i < optim->memory.n_stored; i++) {
        const pd_slot_spec *spec = spec_of(optim, optim->memory.stored[i].slot);
        int64_t rows, cols;
        pd_slot_sides(spec, &rows, &cols);
        optim->memory.stored[i].codes = pd_quantized_at(memory, spec->storage, spec->diagonal_apart, rows, cols);
        zero_gaps(&optim->memory.stored[i].codes);
        memory += room_of(spec);
    }
}

int pd_slots_make(pd_optim *optim)
{
    if ((optim->slot = calloc(optim->shared->plan.n_slots + 1, sizeof *optim->slot)) == NULL) return PD_NO_MEMORY;
    if (optim->memory.state_bytes == 0) return PD_OK;
    if ((optim->saved.state = pd_pages_new((size_t)optim->memory.state_bytes)) == NULL) return PD_NO_MEMORY;
    place(optim);
    return PD_OK;
}

/* Fills a coded slot with initial values: makes its float32 form and encodes it. */
static int fill_coded(const pd_optim *optim, int slot, int64_t n)
{
    float *values = pd_floats_new(n);

    if (values == NULL) return PD_NO_MEMORY;
    fill(values, spec_of(optim, slot), 0, n, n);
    pd_quantize(pd_slot_codes(optim, slot), values);
    free(values);
    return PD_OK;
}

int pd_slot_fill(const pd_optim *optim, pd_fill *at, double *budget_ns)
{
    const pd_slot_spec *spec = spec_of(optim, (int)at->slot);
    int64_t n = spec->temporary ? 0 : pd_slot_elements(spec), left = n - at->element, most;

    *budget_ns -= SLOT_NS;
    if (pd_slot_is_coded(spec) && n > 0) {
        if (fill_coded(optim, (int)at->slot, n) != PD_OK) return PD_NO_MEMORY;
        *budget_ns -= CODED_NS * (double)n;
    } else if (n > 0) {
        most = *budget_ns > FILL_NS * (double)left ? left : (int64_t)(*budget_ns / FILL_NS);
        if (most < LEAST_FILL) most = LEAST_FILL < left ? LEAST_FILL : left;
        fill(optim->slot[at->slot], spec, at->element, at->element + most, n);
        *budget_ns -= FILL_NS * (double)most;
        at->element += most;
        if (at->element < n) return PD_OK;
    }
    *at = (pd_fill){ .slot = at->slot + 1 };
    return PD_OK;
}

int pd_slots_open(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;
    bool borrow = optim->step.io.after != optim->step.io.before;
    int64_t floats = optim->memory.temporary_floats - (borrow ? optim->memory.after_floats : 0);
    float *memory;

    if (optim->memory.temporary_floats == 0) return PD_OK;
    if (floats > 0 && (optim->memory.temporary = pd_floats_new(floats)) == NULL) return PD_NO_MEMORY;
    memory = optim->memory.temporary;
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!spec->temporary && (!pd_slot_is_coded(spec) || spec->blockwise)) continue;
        optim->slot[i] = spec->in_after && borrow ? optim->step.io.after : memory;
        if (optim->slot[i] == memory) memory += floats_of(spec);
    }
    return PD_OK;
}

void pd_slots_close(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    if (optim->memory.temporary_floats == 0) return;
    for (size_t i = 0; i < plan->n_slots; i++)
        if (plan->slots[i].temporary || pd_slot_is_coded(&plan->slots[i])) optim->slot[i] = NULL;
    free(optim->memory.temporary);
    optim->memory.temporary = NULL;
}

void pd_stored_open(const pd_optim *optim, size_t i)
{
    const pd_stored *stored = &optim->memory.stored[i];
    bool past_cache = optim->beyond_cache && stored->block < 0; /* a block's slots are used at once */

    (past_cache ? pd_dequantize_past_cache : pd_dequantize)(optim->slot[stored->slot], &stored->codes);
}

void pd_stored_close(const pd_optim *optim, size_t i)
{
    const pd_stored *stored = &optim->memory.stored[i];

    if (!pd_quantized_holds(&stored->codes, optim->slot[stored->slot]))
        pd_quantize(&stored->codes, optim->slot[stored->slot]);
}

void pd_block_open(const pd_optim *optim, int64_t block, float *memory)
{
    size_t first, end;

    pd_stored_of_block(optim, block, &first, &end);
    for (size_t i = first; i < end; i++) {
        optim->slot[optim->memory.stored[i].slot] = memory;
        pd_stored_open(optim, i);
        memory += floats_of(spec_of(optim, optim->memory.stored[i].slot));
    }
}

void pd_block_close(const pd_optim *optim, int64_t block)
{
    size_t first, end;

    pd_stored_of_block(optim, block, &first, &end);
    for (size_t i = first; i < end; i++) {
        pd_stored_close(optim, i);
        optim->slot[optim->memory.stored[i].slot] = NULL;
    }
}

const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot)
{
    const pd_slot_spec *spec = spec_of(optim, slot);
    size_t first = 0, end = optim->memory.n_whole, past;

    if (optim->slot[slot] != NULL) return NULL;
    if (spec->blockwise) pd_stored_of_block(optim, spec->block, &first, &end);
    past = end;
    /* binary search: stored[first] to stored[end - 1] are sorted by `slot` */
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (optim->memory.stored[middle].slot < slot)
            first = middle + 1;
        else
            end = middle;
    }
    return first < past && optim->memory.stored[first].slot == slot ? &optim->memory.stored[first].codes : NULL;
}

/* The arguments of copy_bytes. A stripe is a range of bytes. */
typedef struct copy_work {
    char *to;
    const char *from;
    int64_t bytes;
    int stripes;
} copy_work;

static void copy_stripe(const void *work, int stripe)
{
    const copy_work *w = work;
    int64_t first = pd_stripe_bound(w->bytes, PD_STRIPE_EVEN, stripe, w->stripes),
            end = pd_stripe_bound(w->bytes, PD_STRIPE_EVEN, stripe + 1, w->stripes);

    memcpy(w->to + first, w->from + first, (size_t)(end - first));
}

/* Copies memory. Threads of a parallel region share a long copy: to populate fresh memory takes longer than the copy
 * itself. */
static void copy_bytes(void *to, const void *from, int64_t bytes)
{
    enum { LONG = 4 << 20, MOST = 32 };
    copy_work w = { to, from, bytes, bytes / LONG > MOST ? MOST : bytes > LONG ? (int)(bytes / LONG) : 1 };

    if (bytes > 0) pd_stripes_run(w.stripes, copy_stripe, &w); /* a slot without elements may have no memory */
}

static void copy(void *to, const void *from, const pd_slot_spec *spec)
{
    copy_bytes(to, from, pd_slot_seen_bytes(spec));
}

static void mirror(void *at, const pd_slot_spec *spec)
{
    if (spec->storage == PD_STORE_F64)
        pd_mirror_f64(at, spec->shape.dim[0]);
    else
        pd_mirror(pd_mat_dense(at, spec->shape.dim[0], spec->shape.dim[1]));
}

void pd_slot_load(const pd_optim *optim, int slot, void *to)
{
    const pd_slot_spec *spec = spec_of(optim, slot);
    const pd_quantized *codes = pd_slot_codes(optim, slot);

    if (codes != NULL)
        pd_dequantize(to, codes);
    else
        copy(to, optim->slot[slot], spec);
    if (spec->symmetric) mirror(to, spec);
}

void pd_slot_store(const pd_optim *optim, int slot, const void *from)
{
    const pd_quantized *codes = pd_slot_codes(optim, slot);

    if (codes != NULL)
        pd_quantize(codes, from);
    else
        copy(optim->slot[slot], from, spec_of(optim, slot));
}

/* Returns where the item of a task begins in a slot that has one item for each block (PD_SHARE_ITEM). The slot must
 * have its float32 form now. */
static float *item_at(const pd_optim *optim, const pd_task_spec *task, int slot)
{
    return optim->slot[slot] + task->block * pd_slot_item_elements(spec_of(optim, slot));
}

static int64_t item_bytes(const pd_optim *optim, int slot)
{
    return pd_slot_item_elements(spec_of(optim, slot)) * (int64_t)sizeof(float);
}

void pd_slot_part_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to)
{
    const pd_plan *plan = &optim->shared->plan;

    switch (plan->slots[slot].share) {
    case PD_SHARE_WHOLE: pd_slot_load(optim, slot, to); break;
    case PD_SHARE_BOX: pd_block_gather(to, optim->slot[slot], &plan->shape, &plan->blocks[task->block]); break;
    case PD_SHARE_ITEM: copy_bytes(to, item_at(optim, task, slot), item_bytes(optim, slot)); break;
    }
}

void pd_slot_part_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from)
{
    const pd_plan *plan = &optim->shared->plan;

    switch (plan->slots[slot].share) {
    case PD_SHARE_WHOLE: pd_slot_store(optim, slot, from); break;
    case PD_SHARE_BOX: pd_block_scatter(optim->slot[slot], from, &plan->shape, &plan->blocks[task->block]); break;
    case PD_SHARE_ITEM: copy_bytes(item_at(optim, task, slot), from, item_bytes(optim, slot)); break;
    }
}
