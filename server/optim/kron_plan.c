/* kron_plan.c - plans the slots, blocks and tasks of a parameter of the optimizer kron. */
#include "kron_plan.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "axes.h"
#include "partition.h"
#include "hyper_text.h"
#include "pages.h"

void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular,
                   int memory_save_mode, bool *diagonal)
{
    int largest = 0;

    for (int d = 1; d < shape->rank; d++)
        if (shape->dim[d] >= shape->dim[largest]) largest = d;
    for (int d = 0; d < PD_MAX_RANK; d++)
        diagonal[d] = d >= shape->rank || shape->dim[d] == 1 || shape->dim[d] > max_size_triangular ||
                      shape->rank < min_ndim_triangular || memory_save_mode == KRON_SAVE_ALL_DIAG ||
                      (memory_save_mode == KRON_SAVE_ONE_DIAG && d == largest);
}

/* Returns the loss of a merged dimension of size `product`: a measure of how far the size is from the target size. The
 * merging with the least sum of losses is chosen. */
static double loss_of(double product, double target)
{
    double loss = product < target ? log2(target / product) : 10 * log2(product / target);

    if (product < target / 8) loss += 100 * log2(target / (8 * product));
    if (product > 8 * target) loss += 1000 * log2(product / (8 * target));
    return loss;
}

/* Returns whether way number `way` of merging neighbouring dimensions joins dimensions d and d + 1 of a shape. Each bit
 * of `way` says whether two neighbours are joined, the highest bit for the first two. So a low number joins dimensions
 * at the end only. */
static bool joins(const pd_shape *shape, int way, int d)
{
    return d + 1 < shape->rank && (way >> (shape->rank - 2 - d) & 1) != 0;
}

static double loss_of_way(const pd_shape *shape, int way, int64_t target)
{
    double loss = 0, product = 1;

    for (int d = 0; d < shape->rank; d++) {
        product *= (double)shape->dim[d];
        if (joins(shape, way, d)) continue;
        loss += loss_of(product, (double)target);
        product = 1;
    }
    return loss;
}

/* Returns the number of the way to merge neighbouring dimensions with the least loss (distance from the target size);
 * of equally good ways the lowest number. */
static int best_way(const pd_shape *shape, int64_t target)
{
    int best = 0;
    double least = loss_of_way(shape, 0, target);

    for (int way = 1; way < 1 << (shape->rank - 1); way++) {
        double loss = loss_of_way(shape, way, target);
        if (!(loss < least)) continue;
        least = loss;
        best = way;
    }
    return best;
}

static bool all_are_1(const pd_shape *shape)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] != 1) return false;
    return true;
}

pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target)
{
    pd_kron_shape merged = { .shape = { .rank = 0 } };
    bool one = shape->rank == 0 || (target > 0 && all_are_1(shape));
    int way = one || target <= 0 ? 0 : best_way(shape, target), n = 0;

    if (one) {
        merged = (pd_kron_shape){ .shape = { .rank = 1, .dim = { 1 } }, .diagonal = { true } };
        merged.first[1] = shape->rank;
        return merged;
    }
    for (int d = 0; d < shape->rank; d++) {
        bool begins = d == 0 || !joins(shape, way, d - 1);
        if (begins) merged.first[n] = d;
        merged.shape.dim[n] = begins ? shape->dim[d] : merged.shape.dim[n] * shape->dim[d];
        merged.diagonal[n] = diagonal[d] && (begins || merged.diagonal[n]);
        n += !joins(shape, way, d);
    }
    merged.shape.rank = n;
    merged.first[n] = shape->rank;
    return merged;
}

static int64_t rounded_up(int64_t n, int64_t to)
{
    return n / to * to + (n % to != 0 ? to : 0);
}

pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads)
{
    pd_kron_cut cut = { .n_blocks = 1 };

    for (int d = 0; d < merged->shape.rank; d++) {
        int64_t dim = merged->shape.dim[d];
        bool is_cut = block_size > 0 && !merged->diagonal[d] && dim > block_size;
        cut.step[d] = is_cut ? block_size : dim;
        cut.cuts[d] = is_cut ? rounded_up(dim, block_size) / block_size : 1;
        cut.side[d] = block_size > 0 && pads ? rounded_up(cut.step[d], block_size) : cut.step[d];
        if (__builtin_mul_overflow(cut.n_blocks, cut.cuts[d], &cut.n_blocks)) cut.n_blocks = INT64_MAX;
    }
    return cut;
}

pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index)
{
    pd_block block = { 0 };

    for (int d = merged->shape.rank - 1; d >= 0; d--) {
        int64_t left;
        block.start[d] = index % cut->cuts[d] * cut->step[d];
        left = merged->shape.dim[d] - block.start[d];
        block.size[d] = left < cut->step[d] ? left : cut->step[d];
        index /= cut->cuts[d];
    }
    return block;
}

/* How a parameter's dimensions are merged and cut into blocks: the decisions from which its plan is made. */
typedef struct draft {
    const double *h; /* values of the hyperparameters */
    pd_shape shape;  /* the parameter's shape without its scanned dimensions, which count layers */
    int scanned;     /* number of scanned dimensions */
    int64_t layers;  /* number of layers: the product of the scanned dimensions */
    pd_kron_shape merged;
    pd_kron_cut cut;
} draft;

static int is_listed(bool *listed, const char *name, const char *list)
{
    char *copy = strdup(list), *rest = copy, *inside = NULL;
    int rc = copy == NULL ? PD_NO_MEMORY : pd_text_inside(&inside, list);

    *listed = false;
    if (inside != NULL) rest = inside;
    for (char *item; rc == PD_OK && (item = pd_text_item(&rest)) != NULL;)
        *listed = *listed || (*name != '\0' && strcmp(item, name) == 0);
    free(copy);
    free(inside);
    return rc;
}

/* Counts the scanned dimensions of a parameter: the leading ones that count independent layers, as their names say. */
static int count_scanned(const pd_declaration *declaration, int *n, pd_error *err)
{
    const char *list = pd_hypers_given_text(&declaration->hypers, SCANNED_AXES);
    bool listed = true;
    pd_axes axes;
    int rc = pd_axes_read(&axes, declaration->axes, declaration->shape.rank, err);

    if (rc != PD_OK) return rc;
    *n = 0;
    if (*list == '\0')
        *n = pd_axes_leading_batch(&axes);
    else
        for (; *n < axes.n && rc == PD_OK; *n += listed)
            if ((rc = is_listed(&listed, axes.name[*n], list)) != PD_OK || !listed) break;
    if (rc != PD_OK || *n == 0 || *n < declaration->shape.rank) return rc;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "all dimensions are scanned layers (axes \"%.100s\"), which leaves kron nothing to precondition: "
                   "rename the last axis, or set scanned_axes",
                   declaration->axes);
}

static pd_kron_shape merged_of(const pd_shape *shape, const double *h, bool merges)
{
    bool diagonal[PD_MAX_RANK];
    int64_t elements = 0;

    pd_kron_types(shape, (int64_t)h[MAX_SIZE], (int64_t)h[MIN_NDIM], (int)h[SAVE_MODE], diagonal);
    (void)pd_shape_elements(shape, &elements); /* the whole parameter's were counted before */
    for (int d = 0; d < shape->rank && h[UPDATE_RULE] != PD_KRON_EQ; d++) {
        double n = (double)shape->dim[d];
        diagonal[d] = diagonal[d] || n * n > h[MAX_SKEW] * (double)elements;
    }
    return pd_kron_merged(shape, diagonal, merges ? (int64_t)h[MERGED_SIZE] : 0);
}

static pd_kron_cut cut_of(const pd_kron_shape *merged, const double *h, bool pads)
{
    return pd_kron_cut_of(merged, h[PARTITION] != 0 ? (int64_t)h[BLOCK_SIZE] : 0, pads);
}

/* Makes the draft of a parameter: decides how its dimensions are merged and cut into blocks. A parameter without
 * elements gets no factors. */
static int make_draft(draft *d, const pd_declaration *declaration, int64_t elements, pd_error *err)
{
    int rc = count_scanned(declaration, &d->scanned, err);

    if (rc != PD_OK) return rc;
    d->h = declaration->hypers.value;
    d->layers = 1;
    for (int i = 0; i < declaration->shape.rank; i++) {
        int64_t dim = declaration->shape.dim[i];
        if (i < d->scanned)
            d->layers *= dim;
        else
            d->shape.dim[d->shape.rank++] = dim;
    }
    if (elements == 0) return PD_OK;
    d->merged = merged_of(&d->shape, d->h, d->h[MERGE] != 0);
    d->cut = cut_of(&d->merged, d->h, d->h[PAD_BLOCKS] != 0 && d->h[UPDATE_RULE] == PD_KRON_EQ);
    return PD_OK;
}

static double numbers_of(const pd_kron_shape *merged, const pd_kron_cut *cut)
{
    double numbers = 0;

    for (int d = 0; d < merged->shape.rank; d++)
        numbers += (double)cut->side[d] * (merged->diagonal[d] ? 1 : (double)cut->side[d]);
    return numbers * (double)cut->n_blocks;
}

/* Returns the number of elements of a padded block, which is also that of its random probe. INT64_MAX: the number does
 * not fit an int64_t. */
static int64_t probe_of(const draft *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->merged.shape.rank; i++)
        if (__builtin_mul_overflow(n, d->cut.side[i], &n)) return INT64_MAX;
    return n;
}

static int check_sizes(const draft *d, pd_error *err)
{
    int64_t blocks, bytes;
    char text[192];

    if (d->cut.n_blocks == INT64_MAX || __builtin_mul_overflow(d->layers, d->cut.n_blocks, &blocks) ||
        blocks > PD_MAX_BLOCKS)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shape %s would be cut into more than %d blocks: use a larger block_size than %.0f",
                       pd_shape_text(&d->merged.shape, text, sizeof text), PD_MAX_BLOCKS, d->h[BLOCK_SIZE]);
    if (probe_of(d) > INT_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a block would have more than %d elements with its padding, of shape %s: set pad_blocks=no, let "
                       "fewer dimensions be diagonal, or cut them by partition_grads_into_blocks and block_size",
                       INT_MAX, pd_shape_text(&d->merged.shape, text, sizeof text));
    for (int i = 0; i < d->merged.shape.rank; i++)
        if (!d->merged.diagonal[i] &&
            __builtin_mul_overflow(d->cut.side[i] * d->cut.side[i], blocks * (int64_t)sizeof(double), &bytes))
            return pd_fail(
                err, PD_INVALID_ARGUMENT,
                "triangular factors of side %lld are too large: use a smaller block_size or max_size_triangular",
                (long long)d->cut.side[i]);
    return PD_OK;
}

/* Writes a note for the user into the plan if the parameter's factors have far more numbers than the parameter has
 * weights, and merging dimensions and padding blocks are the cause. */
static void note_size(pd_plan *plan, const draft *d)
{
    enum { FEW = 1 << 16, MANY = 16 };
    double numbers = numbers_of(&d->merged, &d->cut), weights = (double)plan->elements / (double)d->layers;
    pd_kron_shape apart = merged_of(&d->shape, d->h, false);
    pd_kron_cut cut = cut_of(&apart, d->h, false);

    if (numbers < FEW || numbers < MANY * weights || numbers <= numbers_of(&apart, &cut)) return;
    snprintf(
        plan->note, sizeof plan->note,
        "its factors hold %.0f numbers for each weight; with merge_small_dims=no pad_blocks=no they would hold %.2g",
        numbers / weights, numbers_of(&apart, &cut) / weights);
}

static pd_storage storage_of(double dtype)
{
    return dtype != 0 ? PD_STORE_BF16 : PD_STORE_F32;
}

/* Sets spec->follows of a factor's slot: to which dimension of the parameter each dimension of the slot corresponds. A
 * merged dimension corresponds to none. The second dimension of a factor's matrix corresponds to none either, because
 * factors are divided by rows. */
static void follow(pd_slot_spec *spec, const draft *d, int dim)
{
    spec->follows_known = true;
    memset(spec->follows, -1, sizeof spec->follows);
    if (d->scanned == 1 && d->cut.n_blocks == 1) spec->follows[0] = 0;
    if (d->shape.rank > 0 && d->merged.first[dim + 1] == d->merged.first[dim] + 1)
        spec->follows[1] = (int8_t)(d->scanned + d->merged.first[dim]);
}

double pd_kron_fill(pd_kron_rule rule, double scale, int rank)
{
    return pow(scale, (pd_kron_rule_fits_p(rule) ? 2.0 : 1.0) / rank);
}

static pd_kron_rule rule_of(const draft *d)
{
    return (pd_kron_rule)d->h[UPDATE_RULE];
}

static int add_factor(pd_plan *plan, const draft *d, int dim)
{
    int64_t side = d->cut.side[dim];
    double scale = d->h[INIT_SCALE];
    pd_slot_spec Q = { .name = "Q",
                       .number = dim,
                       .shape = { .rank = 2, .dim = { (int64_t)plan->n_blocks, side } },
                       .share = PD_SHARE_ITEM,
                       .fill = scale == PD_KRON_AUTO ? 0 : (float)pd_kron_fill(rule_of(d), scale, d->merged.shape.rank),
                       .storage = storage_of(d->h[PRECOND_DTYPE]) };

    if (!d->merged.diagonal[dim]) {
        Q.shape.dim[Q.shape.rank++] = side;
        Q.identity = true;
    }
    follow(&Q, d, dim);
    return pd_plan_slot(plan, &Q);
}

/* Adds the slots of all factors, or, with `numbers`, those of their smoothness numbers. Returns the index of the first
 * one; -1: there are no blocks. */
static int add_for_each_dimension(pd_plan *plan, const draft *d, bool numbers)
{
    int first = -1;

    for (int dim = 0; dim < d->merged.shape.rank && plan->n_blocks > 0; dim++) {
        pd_slot_spec L = { .name = "L",
                           .number = dim,
                           .shape = { .rank = 1, .dim = { (int64_t)plan->n_blocks } },
                           .share = PD_SHARE_ITEM };
        int slot = numbers ? pd_plan_slot(plan, &L) : add_factor(plan, d, dim);
        if (slot == PD_NO_MEMORY) return PD_NO_MEMORY;
        if (dim == 0) first = slot;
    }
    return first;
}

/* Adds the slots of rules other than PD_KRON_EQ. */
static int add_fit_slots(pd_plan *plan, const draft *d)
{
    pd_kron_own *own = plan->own;
    pd_slot_spec gradient = {
        .name = "whitened", .number = -1, .shape = plan->shape, .temporary = true, .share = PD_SHARE_BOX
    };

    own->fitted = own->x;
    if (own->rule == PD_KRON_EQ) return PD_OK;
    own->l = add_for_each_dimension(plan, d, true);
    if (d->h[WHITEN_GRAD] != 0 && d->h[B1] != 0) own->fitted = pd_plan_slot(plan, &gradient);
    return own->l == PD_NO_MEMORY || own->fitted < 0 ? PD_NO_MEMORY : PD_OK;
}

static int add_slots(pd_plan *plan, const draft *d, const pd_shape *declared)
{
    pd_kron_own *own = plan->own;
    pd_slot_spec mu = { .name = "mu", .number = -1, .shape = *declared, .storage = storage_of(d->h[MU_DTYPE]) };
    pd_slot_spec counter = { .name = "update_counter", .number = -1 };
    pd_slot_spec X = {
        .name = "update", .number = -1, .shape = plan->shape, .temporary = true, .in_after = true, .share = PD_SHARE_BOX
    };
    pd_slot_spec decision = {
        .name = "decision", .number = -1, .shape = { .rank = 1, .dim = { DECIDED } }, .temporary = true
    };

    own->mu = d->h[B1] != 0 ? pd_plan_slot(plan, &mu) : -1;
    own->counter = pd_plan_slot(plan, &counter);
    own->q = add_for_each_dimension(plan, d, false);
    own->x = pd_plan_slot(plan, &X);
    own->decision = pd_plan_slot(plan, &decision);
    if (own->mu == PD_NO_MEMORY || own->q == PD_NO_MEMORY) return PD_NO_MEMORY;
    return own->counter < 0 || own->x < 0 || own->decision < 0 ? PD_NO_MEMORY : add_fit_slots(plan, d);
}

/* Adds the blocks of a parameter to the plan, layer by layer. A block lies in one layer: it has one index of each
 * scanned dimension. */
static int add_blocks(pd_plan *plan, const draft *d)
{
    plan->n_blocks = (size_t)(d->layers * d->cut.n_blocks);
    if ((plan->blocks = calloc(plan->n_blocks, sizeof *plan->blocks)) == NULL) return PD_NO_MEMORY;
    for (int64_t b = 0; b < (int64_t)plan->n_blocks; b++) {
        pd_block of_layer = pd_kron_block_at(&d->merged, &d->cut, b % d->cut.n_blocks), *block = &plan->blocks[b];
        int64_t layer = b / d->cut.n_blocks;
        for (int i = 0; i < d->merged.shape.rank; i++) {
            block->start[d->scanned + i] = of_layer.start[i];
            block->size[d->scanned + i] = of_layer.size[i];
        }
        for (int i = d->scanned - 1; i >= 0; layer /= plan->shape.dim[i--]) {
            block->start[i] = layer % plan->shape.dim[i];
            block->size[i] = 1;
        }
    }
    return PD_OK;
}

/* Returns how many random numbers the largest block takes. */
static int64_t most_normals(const pd_kron_own *own)
{
    pd_kron_block block = { .rank = own->rank };

    memcpy(block.size, own->side, sizeof block.size);
    memcpy(block.diagonal, own->diagonal, sizeof block.diagonal);
    return pd_kron_fit_normals(&block, own->rule);
}

static void keep(pd_plan *plan, const draft *d, int declared_rank)
{
    pd_kron_own *own = plan->own;

    own->other = -1;
    own->scanned = d->scanned;
    own->rank = d->merged.shape.rank;
    own->rule = rule_of(d);
    own->probe = probe_of(d);
    own->pads = d->h[PARTITION] != 0 && d->h[PAD_BLOCKS] != 0 && own->rule == PD_KRON_EQ;
    own->in_step = d->h[LAX_MAP] != 0 && d->scanned > 0;
    own->decays = declared_rank >= (int)d->h[DECAY_MIN_NDIM];
    for (int i = 0; i < d->merged.shape.rank; i++) {
        own->diagonal[i] = d->merged.diagonal[i];
        own->side[i] = d->cut.side[i];
    }
    own->normals = own->rule == PD_KRON_EQ ? own->probe : most_normals(own);
}

pd_kron_block pd_kron_block_of(const pd_plan *plan, int64_t index)
{
    const pd_kron_own *own = plan->own;
    const pd_block *box = &plan->blocks[index];
    bool pads = own->pads;
    pd_kron_block block = { .rank = own->rank };

    for (int d = 0; d < block.rank; d++) {
        block.diagonal[d] = own->diagonal[d];
        block.size[d] = box->size[own->scanned + d];
        block.side[d] = own->side[d];
        block.full[d] = pads ? block.side[d] : block.size[d];
    }
    return block;
}

pd_kron_place pd_kron_place_of(const pd_plan *plan, int64_t index)
{
    const pd_kron_own *own = plan->own;
    const pd_block *box = &plan->blocks[index];
    int scanned = own->scanned;
    pd_kron_place place = { .shape = { .rank = plan->shape.rank - scanned } };

    for (int d = 0; d < plan->shape.rank; d++) {
        place.first = place.first * plan->shape.dim[d] + (d < scanned ? box->start[d] : 0);
        if (d < scanned) continue;
        place.shape.dim[d - scanned] = plan->shape.dim[d];
        place.box.start[d - scanned] = box->start[d];
        place.box.size[d - scanned] = box->size[d];
    }
    return place;
}

static int add_task(pd_plan *plan, int64_t b)
{
    const pd_kron_own *own = plan->own;
    pd_kron_block block = pd_kron_block_of(plan, b);
    bool fits = own->rule != PD_KRON_EQ;
    int n = fits ? 2 * block.rank : block.rank;
    pd_task_spec task = { .block = (int)b,
                          .n_inputs = 2 + n,
                          .n_outputs = n,
                          .cost = fits ? pd_kron_fit_flops(&block, own->rule) : pd_kron_update_flops(&block),
                          .scratch = pd_kron_task_floats(own, &block) * (int64_t)sizeof(float) };

    task.input[0] = own->fitted;
    task.input[1] = own->decision;
    for (int d = 0; d < n; d++)
        task.input[2 + d] = task.output[d] = d < block.rank ? own->q + d : own->l + d - block.rank;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

int64_t pd_kron_task_floats(const pd_kron_own *own, const pd_kron_block *block)
{
    return own->rule == PD_KRON_EQ
               ? pd_kron_task_scratch(block)
               : pd_floats_padded(pd_kron_fit_normals(block, own->rule)) + pd_kron_fit_scratch(block);
}

/* Returns how many floats of scratch memory an update of a block's factors within the step needs: those of a task, and
 * memory for a copy of the block and for the results. */
static int64_t update_floats(const pd_kron_own *own, const pd_kron_block *block)
{
    int64_t floats = pd_kron_phase_scratch(block);

    if (own->rule == PD_KRON_EQ) return floats;
    return floats - pd_kron_task_scratch(block) + pd_kron_task_floats(own, block) + block->rank * pd_floats_padded(1);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Adds the work memory for large products as a slot, which all threads share. Scratch memory would take as much for
 * each thread. */
static int add_other(pd_plan *plan)
{
    pd_kron_own *own = plan->own;
    pd_slot_spec other = { .name = "half_update", .number = -1, .shape = plan->shape, .temporary = true };

    own->other = pd_plan_slot(plan, &other);
    return own->other < 0 ? PD_NO_MEMORY : PD_OK;
}

static int add_work(pd_plan *plan)
{
    const pd_kron_own *own = plan->own;
    bool in_step = own->in_step, needs_other = false;

    for (int64_t b = 0; b < (int64_t)plan->n_blocks; b++) {
        pd_kron_block block = pd_kron_block_of(plan, b);
        pd_kron_place place = pd_kron_place_of(plan, b);
        bool fits = own->rule != PD_KRON_EQ;
        int64_t floats =
            larger(pd_block_view_scratch(&place.shape, &place.box) + (fits ? pd_kron_whiten_scratch(&block) : 0),
                   in_step ? update_floats(own, &block) : 0);
        plan->scratch_floats = (size_t)larger((int64_t)plan->scratch_floats, floats);
        plan->flops += fits ? pd_kron_whiten_flops(&block, own->rule) : pd_kron_precondition_flops(&block);
        plan->large_products = plan->large_products || (fits ? pd_kron_fit_is_large(&block) : pd_kron_is_large(&block));
        needs_other = needs_other || (!fits && pd_kron_needs_other(&block));
        if (!in_step && add_task(plan, b) != PD_OK) return PD_NO_MEMORY;
    }
    return needs_other ? add_other(plan) : PD_OK;
}

int pd_kron_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    draft d = { .scanned = 0 };
    int rc = make_draft(&d, declaration, plan->elements, err);

    (void)stats;
    if (rc != PD_OK) return rc;
    keep(plan, &d, declaration->shape.rank);
    if (plan->elements == 0) return add_slots(plan, &d, &declaration->shape);
    if ((rc = check_sizes(&d, err)) != PD_OK) return rc;
    plan->shape.rank = d.scanned;
    for (int i = 0; i < d.merged.shape.rank; i++) plan->shape.dim[plan->shape.rank++] = d.merged.shape.dim[i];
    for (int i = plan->shape.rank; i < PD_MAX_RANK; i++) plan->shape.dim[i] = 0;
    if (add_blocks(plan, &d) != PD_OK || add_slots(plan, &d, &declaration->shape) != PD_OK) return PD_NO_MEMORY;
    plan->adopts_first = d.h[UPDATE_RULE] != PD_KRON_EQ; /* a task of EQ computes a multiplier, which may be late */
    plan->root_delay = d.h[ROOT_DELAY] < 0 ? PD_ROOT_READY : (int)fmin(d.h[ROOT_DELAY], 1 << 30);
    note_size(plan, &d);
    return add_work(plan);
}
