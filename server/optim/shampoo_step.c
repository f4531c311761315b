/* shampoo_step.c - the arithmetic of a shampoo step, block by block. All arithmetic except the matrix roots is done
 * while a block is in the caches. */
#include <math.h>
#include <string.h>

#include "block_products.h"
#include "graft.h"
#include "shampoo_move.h"
#include "shampoo_plan.h"
#include "shampoo_step.h"
#include "shapes.h"

#define TINY 1e-16f /* added to a norm before a division by it, since the norm may be 0 */

float pd_shampoo_correction(double beta, int64_t t)
{
    return 1.0f - powf((float)beta, (float)t);
}

bool pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot)
{
    int64_t start = pd_shampoo_start(h);

    (void)plan, (void)slot;
    return count == start || (count > start && count % (int64_t)h[FREQUENCY] == 0);
}

/* ---- a block in memory ---- */

/* The block that a thread works on, and pointers into the thread's scratch memory. */
typedef struct work {
    const pd_unit *unit;
    shampoo_layout slots;
    shampoo_box box;
    pd_block_view gradient;                 /* the block's gradient; the L2 penalty is added to it if there is one */
    float *filtered, *direction, *products; /* pointers into the thread's scratch memory */
    /* number of elements of the block; length of the contiguous runs in which they lie in the parameter */
    int64_t n, run;
} work;

/* Returns the index in the whole parameter of element i of the block. The element must be the first one of a run (the
 * block's elements that are contiguous in the parameter). */
static int64_t whole(const work *w, int64_t i)
{
    return pd_block_run_start(&w->unit->plan->shape, w->unit->block, i / w->run);
}

static const float *gradient_at(const work *w, int64_t i)
{
    const pd_block_view *view = &w->gradient;
    bool apart = view->rank == 2 && view->stride != view->size[1];

    return view->at + (apart ? i / w->run * view->stride : i);
}

static float *state_at(const work *w, int slot, int64_t i)
{
    return slot < 0 ? NULL : w->unit->slot[slot] + whole(w, i);
}

static bool has_penalty(const double *h)
{
    return h[WEIGHT_DECAY] != 0 && h[DECOUPLED_DECAY] == 0;
}

/* Writes the block's gradient with the L2 penalty, G + weight_decay W, to the contiguous memory `G`. */
static void penalize(const work *w, float *G)
{
    const pd_unit *unit = w->unit;
    const float decay = (float)unit->hyper[WEIGHT_DECAY];

    for (int64_t i = 0; i < w->n; i += w->run) {
        const float *g = unit->gradient + whole(w, i), *weights = unit->before + whole(w, i);
        for (int64_t k = 0; k < w->run; k++) G[i + k] = g[k] + decay * weights[k];
    }
}

static work look(const pd_unit *unit)
{
    const pd_plan *plan = unit->plan;
    shampoo_scratch parts = pd_shampoo_scratch(plan, unit->block, unit->hyper);
    work w = { .unit = unit,
               .slots = pd_shampoo_layout(unit->hyper),
               .box = pd_shampoo_box(plan, unit->block),
               .n = pd_block_elements(unit->block, plan->shape.rank),
               .run = pd_block_run_length(&plan->shape, unit->block) };

    if (has_penalty(unit->hyper)) {
        penalize(&w, unit->scratch);
        w.gradient = pd_block_look(unit->scratch, &w.box.shape, &w.box.block, NULL);
    } else {
        w.gradient = pd_block_look(unit->gradient, &plan->shape, unit->block, unit->scratch);
    }
    w.filtered = unit->scratch + parts.gradient;
    w.direction = parts.direction > 0 ? w.filtered + parts.filtered : w.filtered;
    w.products = w.filtered + parts.filtered + parts.direction;
    return w;
}

/* ---- factors, and the second moment of the graft ---- */

static void add_wide(double *L, double w1, const float *term, double w2, int64_t side)
{
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j <= i; j++) L[i * side + j] = w1 * L[i * side + j] + w2 * (double)term[i * side + j];
}

static void update_factors(const work *w)
{
    const double *h = w->unit->hyper;
    double rest = h[BETA2] == 1 ? 1 : 1 - h[BETA2];
    int rank = w->gradient.rank;

    for (int d = 0; d < rank; d++) {
        int64_t side = w->gradient.size[d];
        float *L = w->unit->slot[pd_shampoo_slot(&w->slots, w->unit->index * rank + d, FACTOR)];
        if (pd_shampoo_factors_are_wide(h)) {
            pd_block_gram(pd_mat_dense(w->products, side, side), 0, 1, &w->gradient, d);
            add_wide((double *)(void *)L, h[BETA2], w->products, rest, side);
        } else {
            pd_block_gram(pd_mat_dense(L, side, side), (float)h[BETA2], (float)rest, &w->gradient, d);
        }
    }
}

static double graft_beta2(const double *h)
{
    if (h[GRAFTING] == GRAFT_ADAGRAD) return 1;
    if (isfinite(h[GRAFTING_BETA2])) return h[GRAFTING_BETA2];
    return h[GRAFTING] == GRAFT_ADAM ? 0.999 : 0.99;
}

static pd_graft graft_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    double beta2 = graft_beta2(h), epsilon = h[GRAFTING] == GRAFT_ADAGRAD ? 1e-10 : 1e-8;
    pd_graft graft = { .kind = PD_GRAFT_PLAIN,
                       .w1 = (float)beta2,
                       .w2 = beta2 == 1 ? 1.0f : (float)(1 - beta2),
                       .divisor = 1,
                       .clip = 1,
                       .correction = 1 };

    if (isfinite(h[GRAFTING_EPSILON])) epsilon = h[GRAFTING_EPSILON];
    graft.epsilon = (float)epsilon;
    if (pd_shampoo_graft_has_moment(h)) graft.kind = PD_GRAFT_CORRECTED;
    if (h[GRAFTING] == GRAFT_ADAM && beta2 < 1) graft.correction = pd_shampoo_correction(beta2, unit->count);
    return graft;
}

static void update_moment(const work *w)
{
    pd_graft graft = graft_of(w->unit);

    for (int64_t i = 0; w->slots.second_moment >= 0 && i < w->n; i += w->run)
        pd_graft_accumulate(state_at(w, w->slots.second_moment, i), gradient_at(w, i), w->run, &graft);
}

/* Updates the factors of a block in steps that start to compute new roots: the roots must be
 * those of the new factors. In other steps pd_shampoo_step updates the factors, while it has the block in the caches
 * anyway. */
void pd_shampoo_factors(const pd_unit *unit)
{
    work w = look(unit);

    update_factors(&w);
    update_moment(&w);
}

bool pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count)
{
    return plan->n_blocks == 0 || !pd_shampoo_due(plan, h, count, NULL);
}

/* ---- the filtered gradient ---- */

static shampoo_filter filter_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    bool ahead = h[BETA3] >= 0;
    shampoo_filter filter = { .beta1 = (float)h[BETA1],
                              .gain = (float)(1 - h[BETA1]),
                              .ahead = ahead,
                              .beta3 = (float)h[BETA3],
                              .rest = (float)(1 - h[BETA3]),
                              .correction = 1 };

    if (h[BIAS_CORRECTION] == 0) return filter;
    filter.correction = pd_shampoo_correction(h[BETA1], unit->count);
    if (ahead) filter.correction = 1.0f - (float)h[BETA3] * powf((float)h[BETA1], (float)(unit->count - 1));
    return filter;
}

/* Computes the filtered gradient D of a block in w->filtered. If gradients are not filtered,
 * the gradient itself is used. Returns the sum of squares of the graft's direction: that of the first-order optimizer
 * whose step length is used. */
static double filter(work *w, const pd_graft *graft)
{
    const shampoo_filter f = filter_of(w->unit);
    double squares = 0;

    for (int64_t i = 0; i < w->n; i += w->run) {
        const float *D = gradient_at(w, i);
        if (w->slots.filtered_grad >= 0) {
            pd_shampoo_filter(w->filtered + i, state_at(w, w->slots.filtered_grad, i), D, w->run, &f);
            D = w->filtered + i;
        }
        if (w->unit->hyper[GRAFTING] != GRAFT_NONE)
            squares += pd_graft_squares(D, state_at(w, w->slots.second_moment, i), w->run, graft);
    }
    if (w->slots.filtered_grad >= 0) w->gradient = pd_block_look(w->filtered, &w->box.shape, &w->box.block, NULL);
    return squares;
}

/* ---- the direction P, in w->direction ---- */

/* Returns whether the step uses the block's inverse roots: it has reached the start step, and each dimension has a
 * root. A root that was never computed is all zeros, so its first diagonal element is 0. A root can be missing only if
 * root_delay is not 0. */
static bool uses_roots(const work *w)
{
    const pd_unit *unit = w->unit;
    int rank = w->gradient.rank;

    if (unit->count < pd_shampoo_start(unit->hyper)) return false;
    for (int d = 0; unit->plan->root_delay != 0 && d < rank; d++)
        if (unit->slot[pd_shampoo_slot(&w->slots, unit->index * rank + d, INVERSE)][0] == 0) return false;
    return true;
}

/* Computes the preconditioned direction of a block from its inverse roots. Returns the factor that gives it the length
 * of the graft's step (the first-order optimizer's); 1 without grafting. */
static float precondition(const work *w, double graft_squares)
{
    const pd_unit *unit = w->unit;
    int rank = w->gradient.rank;
    float *R[PD_MAX_RANK];
    double squares;

    for (int d = 0; d < rank; d++) R[d] = unit->slot[pd_shampoo_slot(&w->slots, unit->index * rank + d, INVERSE)];
    squares = pd_block_contract(w->direction, &w->box.shape, &w->box.block, &w->gradient, R, w->products, pd_squares);
    return unit->hyper[GRAFTING] == GRAFT_NONE ? 1.0f : pd_norm(graft_squares) / (pd_norm(squares) + TINY);
}

/* Writes the direction of the graft to w->direction, or zeros without grafting. Used before
 * the block's first matrix roots exist. */
static void go_with_graft(const work *w, const pd_graft *graft)
{
    for (int64_t i = 0; i < w->n; i += w->run) {
        if (w->unit->hyper[GRAFTING] == GRAFT_NONE)
            memset(w->direction + i, 0, (size_t)w->run * sizeof(float));
        else
            pd_graft_directions(w->direction + i, gradient_at(w, i), state_at(w, w->slots.second_moment, i), w->run,
                                graft);
    }
}

/* ---- the step ---- */

static shampoo_move move_of(const double *h, float length)
{
    return (shampoo_move){ .length = length,
                           .decays = h[WEIGHT_DECAY] != 0 && h[DECOUPLED_DECAY] != 0,
                           .decay = (float)h[WEIGHT_DECAY],
                           .has_momentum = h[MOMENTUM] != 0,
                           .nesterov = h[NESTEROV] != 0,
                           .momentum = (float)h[MOMENTUM],
                           .gain = (float)(1 - h[DAMPENING]),
                           .rate = -(float)h[LR],
                           .send = (int)h[COMMUNICATION_DTYPE],
                           .sends_weights = h[COMMUNICATE_PARAMS] != 0 };
}

static void move(const work *w, float length)
{
    const pd_unit *unit = w->unit;
    shampoo_move m = move_of(unit->hyper, length);

    for (int64_t i = 0; i < w->n; i += w->run) {
        int64_t at = whole(w, i);
        pd_shampoo_move(unit->after + at, unit->before + at, w->direction + i, state_at(w, w->slots.momentum, i),
                        w->run, &m);
        if (unit->update != NULL) memcpy(unit->update + at, w->direction + i, (size_t)w->run * sizeof(float));
    }
}

void pd_shampoo_step(const pd_unit *unit)
{
    work w = look(unit);
    pd_graft graft = graft_of(unit);
    float length = 1;
    double squares;

    if (!pd_shampoo_due(unit->plan, unit->hyper, unit->count, NULL)) {
        update_factors(&w);
        update_moment(&w);
    }
    squares = filter(&w, &graft);
    if (uses_roots(&w))
        length = precondition(&w, squares);
    else
        go_with_graft(&w, &graft);
    move(&w, length);
}
