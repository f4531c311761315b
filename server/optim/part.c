/* part.c - reads and writes named parts of an optimizer's state between two steps. A part is one slot, or the elements
 * of it that belong to one block of the parameter. Values are given as float64, whatever type the state is stored
 * in. */
#include "part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "linalg.h"
#include "pages.h"
#include "partition.h"
#include "stored.h"

enum { TILE = 1024 };

/* Returns whether a slot has one element for each element of the parameter. The blocks that the parameter is cut into
 * then divide the slot as well. */
static bool is_of_parameter(const pd_plan *plan, const pd_slot_spec *spec)
{
    int64_t n = -1;

    return !spec->of_block && !spec->blockwise && !spec->symmetric && pd_shape_elements(&spec->shape, &n) == PD_OK &&
           n == plan->elements;
}

static void take_item(const pd_slot_spec *spec, int block, pd_part *part)
{
    part->first = block * pd_slot_item_elements(spec);
    part->shape = (pd_shape){ .rank = spec->shape.rank - 1 };
    memcpy(part->shape.dim, spec->shape.dim + 1, (size_t)part->shape.rank * sizeof part->shape.dim[0]);
}

static bool finds(const pd_plan *plan, size_t slot, int block, pd_part *part)
{
    const pd_slot_spec *spec = &plan->slots[slot];

    *part = (pd_part){ .slot = slot, .shape = spec->shape };
    if (block == (spec->of_block ? spec->block : -1)) return true;
    if (block < 0 || (size_t)block >= plan->n_blocks) return false;
    if (spec->share == PD_SHARE_ITEM) {
        take_item(spec, block, part);
        return true;
    }
    if (!is_of_parameter(plan, spec)) return false;
    part->box = &plan->blocks[block];
    part->shape = (pd_shape){ .rank = plan->shape.rank };
    memcpy(part->shape.dim, part->box->size, (size_t)plan->shape.rank * sizeof part->shape.dim[0]);
    return true;
}

bool pd_plan_part(const pd_plan *plan, const char *slot, int number, int block, pd_part *part)
{
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (!spec->temporary && spec->number == number && strcmp(spec->name, slot) == 0 && finds(plan, i, block, part))
            return true;
    }
    return false;
}

/* The runs of contiguous memory in which a part lies in its slot: n runs of `length` elements each. */
typedef struct runs {
    int64_t n, length;
} runs;

static runs runs_of(const pd_plan *plan, const pd_part *part)
{
    runs r = { .n = 1 };

    (void)pd_shape_elements(&part->shape, &r.length);
    if (part->box == NULL || r.length == 0) return r;
    r.n = r.length / pd_block_run_length(&plan->shape, part->box);
    r.length /= r.n;
    return r;
}

static int64_t start_of(const pd_plan *plan, const pd_part *part, int64_t run)
{
    return part->box == NULL ? part->first : pd_block_run_start(&plan->shape, part->box, run);
}

static bool is_idle(const pd_optim *optim, const pd_part *part)
{
    return optim->step.stage == PD_STAGE_IDLE && part->slot < optim->shared->plan.n_slots &&
           !optim->shared->plan.slots[part->slot].temporary;
}

static void widen(double *out, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (double)from[i];
}

static void read_codes(double *out, const pd_quantized *codes, int64_t first, int64_t n)
{
    float tile[TILE];

    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        pd_dequantize_run(tile, codes, first + i, some);
        widen(out + i, tile, some);
    }
}

static void read_run(double *out, const pd_optim *optim, size_t slot, int64_t first, int64_t n)
{
    const pd_quantized *codes = pd_slot_codes(optim, (int)slot);
    const void *at = optim->slot[slot];

    if (n == 0) return;
    if (codes != NULL)
        read_codes(out, codes, first, n);
    else if (optim->shared->plan.slots[slot].storage == PD_STORE_F64)
        memcpy(out, (const double *)at + first, (size_t)n * sizeof *out);
    else
        widen(out, (const float *)at + first, n);
}

void pd_optim_read_part(const pd_optim *optim, const pd_part *part, double *out)
{
    const pd_plan *plan = &optim->shared->plan;
    runs r = runs_of(plan, part);

    assert(is_idle(optim, part));
    for (int64_t i = 0; i < r.n; i++)
        read_run(out + i * r.length, optim, part->slot, start_of(plan, part, i), r.length);
    if (plan->slots[part->slot].symmetric) pd_mirror_f64(out, part->shape.dim[0]);
}

/* Corrects elements [first, first + n) of a symmetric matrix that were read into `out`. The optimizer keeps only the
 * lower half of such a matrix up to date, so each element above the diagonal is read again from its mirror image
 * below. */
static void read_mirrored(double *out, const pd_optim *optim, size_t slot, int64_t first, int64_t n)
{
    int64_t side = optim->shared->plan.slots[slot].shape.dim[1];

    for (int64_t k = 0; k < n; k++) {
        int64_t row = (first + k) / side, col = (first + k) % side;
        if (col > row) read_run(out + k, optim, slot, col * side + row, 1);
    }
}

void pd_optim_read_elements(const pd_optim *optim, size_t i, int64_t first, int64_t n, double *out)
{
    assert(is_idle(optim, &(pd_part){ .slot = i }));
    read_run(out, optim, i, first, n);
    if (optim->shared->plan.slots[i].symmetric) read_mirrored(out, optim, i, first, n);
}

void pd_optim_read_slot(const pd_optim *optim, size_t i, float *out)
{
    const pd_slot_spec *spec = &optim->shared->plan.slots[i];
    const double *wide = (const void *)optim->slot[i];
    int64_t n = 0;

    assert(is_idle(optim, &(pd_part){ .slot = i }));
    if (spec->storage != PD_STORE_F64) {
        pd_slot_load(optim, (int)i, out);
        return;
    }
    (void)pd_shape_elements(&spec->shape, &n);
    for (int64_t k = 0; k < n; k++) out[k] = (float)wide[k];
    if (spec->symmetric) pd_mirror(pd_mat_dense(out, spec->shape.dim[0], spec->shape.dim[1]));
}

/* Writes the values of a part into a slot of float32 elements, or of float64 elements if `wide`. */
static void write_runs(void *slot, bool wide, const pd_plan *plan, const pd_part *part, const double *in)
{
    runs r = runs_of(plan, part);

    for (int64_t i = 0; i < r.n; i++, in += r.length) {
        int64_t first = start_of(plan, part, i);
        for (int64_t k = 0; wide && k < r.length; k++) ((double *)slot)[first + k] = in[k];
        for (int64_t k = 0; !wide && k < r.length; k++) ((float *)slot)[first + k] = (float)in[k];
    }
}

/* Writes the values of a part into a coded slot (quantized). The whole tensor is decoded and encoded again, because
 * each scale factor belongs to a whole column. */
static int write_codes(const pd_quantized *codes, const pd_optim *optim, const pd_part *part, const double *in)
{
    const pd_plan *plan = &optim->shared->plan;
    float *form = pd_floats_new(codes->rows * codes->cols);

    if (form == NULL) return PD_NO_MEMORY;
    pd_dequantize(form, codes);
    write_runs(form, false, plan, part, in);
    if (plan->slots[part->slot].symmetric) pd_mirror(pd_mat_dense(form, codes->rows, codes->cols));
    pd_quantize(codes, form);
    free(form);
    return PD_OK;
}

int pd_optim_write_part(pd_optim *optim, const pd_part *part, const double *in)
{
    const pd_plan *plan = &optim->shared->plan;
    const pd_quantized *codes = pd_slot_codes(optim, (int)part->slot);

    assert(is_idle(optim, part));
    if (codes != NULL) return write_codes(codes, optim, part, in);
    write_runs(optim->slot[part->slot], plan->slots[part->slot].storage == PD_STORE_F64, plan, part, in);
    return PD_OK;
}
