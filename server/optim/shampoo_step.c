/* shampoo_step.c - the arithmetic of a shampoo step, block by block. All arithmetic except the roots is done while a
 * block is in the caches. */
#include <math.h>
#include <string.h>

#include "block_products.h"
#include "block_rotation.h"
#include "convert.h"
#include "graft.h"
#include "partition.h"
#include "polar.h"
#include "shampoo_step.h"

bool pd_shampoo_factors_are_wide(const double *h)
{
    return h[PRECONDITIONER_DTYPE] == OLD_FLOAT64 || h[FACTOR_DTYPE] == STORE_FLOAT64;
}

bool pd_shampoo_is_kl(const double *h)
{
    return h[PRECONDITIONER] == PRECONDITION_KL || h[PRECONDITIONER] == PRECONDITION_KL_BASES;
}

bool pd_shampoo_has_factors(const double *h)
{
    return h[PRECONDITIONER] < PRECONDITION_SPECTRAL;
}

bool pd_shampoo_is_corrected(const double *h)
{
    return h[PRECONDITIONER] == PRECONDITION_CORRECTED;
}

bool pd_shampoo_begins_with_identity(const double *h)
{
    return h[SEMANTICS] == RELEASE_2026 || pd_shampoo_is_kl(h);
}

bool pd_shampoo_averages(const double *h)
{
    return h[TRAIN_COEFF] > 0;
}

int pd_shampoo_decay(const double *h)
{
    if (h[DECAY_TYPE] != DECAY_DEFAULT) return (int)h[DECAY_TYPE];
    return h[DECOUPLED_DECAY] != 0 ? DECAY_DECOUPLED : DECAY_L2;
}

int pd_shampoo_graft(const double *h)
{
    return (int)(h[PRECONDITIONER] >= PRECONDITION_SGD ? GRAFT_SGD + h[PRECONDITIONER] - PRECONDITION_SGD
                                                       : h[GRAFTING]);
}

bool pd_shampoo_graft_has_moment(const double *h)
{
    return pd_shampoo_graft(h) != GRAFT_NONE && pd_shampoo_graft(h) != GRAFT_SGD;
}

int pd_shampoo_root_order(const pd_plan *plan, const double *h)
{
    double override = h[ROOT_OVERRIDE + plan->shape.rank];

    return override > 0 ? (int) override : 2 * plan->shape.rank;
}

double pd_shampoo_exponent(const pd_plan *plan, const double *h, int d)
{
    if (h[SEMANTICS] == RELEASE_2026) return ((const shampoo_own *)plan->own)->exponent[d];
    return h[EXPONENT_MULTIPLIER] / pd_shampoo_root_order(plan, h);
}

int64_t pd_shampoo_start(const double *h)
{
    return (int64_t)(h[START_STEP] < 0 ? h[FREQUENCY] : h[START_STEP]);
}

shampoo_layout pd_shampoo_layout(const double *h)
{
    bool keeps_basis = h[ROOT_METHOD] == ROOT_TRACKED || h[ROOT_METHOD] == ROOT_QR;
    shampoo_layout slots = { .each = keeps_basis && !pd_shampoo_is_corrected(h) ? 3 : 2 };
    int n = 0;

    slots.filtered_grad = h[BETA1] != 0 ? n++ : -1;
    slots.momentum = h[MOMENTUM] != 0 ? n++ : -1;
    slots.second_moment = pd_shampoo_graft_has_moment(h) ? n++ : -1;
    slots.corrected = pd_shampoo_is_corrected(h) ? n++ : -1;
    slots.apart = pd_shampoo_averages(h) ? n++ : -1;
    slots.sum = pd_shampoo_averages(h) && h[EVAL_COEFF] < 0 ? n : -1;
    n += slots.sum >= 0 ? 2 : 0;
    slots.factors = n;
    return slots;
}

int pd_shampoo_slot(const pd_plan *plan, const shampoo_layout *slots, int64_t block, int d, int which)
{
    const shampoo_own *own = plan->own;

    return slots->factors + ((int)block * own->n_factored + own->place[d]) * slots->each + which;
}

shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block)
{
    shampoo_box box = { .shape.rank = plan->shape.rank };

    for (int d = 0; d < box.shape.rank; d++) box.shape.dim[d] = box.block.size[d] = block->size[d];
    return box;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t aligned(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h)
{
    shampoo_box box = pd_shampoo_box(plan, block);
    int64_t n = aligned(pd_block_elements(block, plan->shape.rank));
    bool penalized = pd_shampoo_decay(h) == DECAY_L2;
    shampoo_scratch parts = { .gradient = penalized ? n : pd_block_view_scratch(&plan->shape, block),
                              .filtered = h[BETA1] != 0 ? n : 0,
                              .products = larger(pd_block_contract_scratch(&box.shape, &box.block),
                                                 pd_block_rotate_scratch(block, plan->shape.rank)) };

    parts.direction = parts.filtered > 0 && plan->shape.rank > 1 ? 0 : n;
    for (int d = 0; pd_shampoo_factors_are_wide(h) && d < plan->shape.rank; d++)
        parts.products = larger(parts.products, aligned(block->size[d] * block->size[d]));
    if (h[PRECONDITIONER] == PRECONDITION_SPECTRAL)
        parts.products = larger(parts.products, pd_polar_scratch(block->size[0], block->size[1]));
    if (pd_shampoo_is_kl(h) || pd_shampoo_is_corrected(h))
        parts.whitened = n + pd_block_rotate_scratch(block, plan->shape.rank);
    return parts;
}

/* The constants with which a gradient G is filtered, that is, averaged over steps. The filtered gradient F becomes
 * beta1 F + gain G, and the direction is D = F / correction. With `ahead` (beta3 is set) it is D = (beta3 F_old + rest
 * G) / correction, where F_old is F before the update. `correction` corrects the bias of the average. */
typedef struct filter_constants {
    float beta1, gain;
    bool ahead; /* whether the direction D is computed with beta3 and rest */
    float beta3, rest;
    float correction;
} filter_constants;

PD_INLINE void filter_pass(float *restrict D, float *restrict F, const float *G, int64_t n,
                           const filter_constants *filter, bool ahead)
{
    const filter_constants f = *filter;

    for (int64_t i = 0; i < n; i++) {
        float g = G[i], next = f.beta1 * F[i] + f.gain * g;
        D[i] = (ahead ? f.beta3 * F[i] + f.rest * g : next) / f.correction;
        F[i] = next;
    }
}

PD_CLONES(void, filter_plain, (float *D, float *F, const float *G, int64_t n, const filter_constants *f),
          (D, F, G, n, f))
{
    filter_pass(D, F, G, n, f, false);
}
PD_CLONES(void, filter_ahead, (float *D, float *F, const float *G, int64_t n, const filter_constants *f),
          (D, F, G, n, f))
{
    filter_pass(D, F, G, n, f, true);
}

static void filter_elements(float *D, float *F, const float *G, int64_t n, const filter_constants *filter)
{
    (filter->ahead ? filter_ahead : filter_plain)(D, F, G, n, filter);
}

/* The constants with which a step moves the weights W along the direction P, with momentum M. `length` gives P the
 * length of the graft's direction (1: P keeps its length), `gain` is the weight of P in the momentum, U the change of
 * the weights:
 *
 *     P <- P length + decay W
 *     M <- momentum M + gain P
 *     P <- M, or gain P + momentum M with Nesterov
 *     U = rate P, rounded
 *     after = before + U, rounded */
typedef struct update_constants {
    float length;
    bool decays;
    float decay;
    bool has_momentum, nesterov;
    float momentum, gain;
    float rate;         /* minus the learning rate */
    int send;           /* communication_dtype: the type that weights or their changes are rounded to */
    bool sends_weights; /* whether the new weights are rounded to communication_dtype; false: their changes are */
} update_constants;

typedef enum mass { NO_MOMENTUM, HEAVY_BALL, NESTEROV_FORM } mass;

/* Adds weight decay and momentum to the direction P. Callers pass `kind` and `decays` as constants, so the compiled
 * loop has no branches. */
PD_INLINE void search_pass(float *restrict P, float *restrict M, const float *W, int64_t n,
                           const update_constants *constants, mass kind, bool decays)
{
    const update_constants m = *constants;

    for (int64_t i = 0; i < n; i++) {
        float p = P[i] * m.length;
        if (decays) p = p + m.decay * W[i];
        if (kind != NO_MOMENTUM) {
            float next = m.momentum * M[i] + m.gain * p;
            p = kind == NESTEROV_FORM ? m.gain * p + m.momentum * next : next;
            M[i] = next;
        }
        P[i] = p;
    }
}

#define SEARCH(name, kind, decays)                                                                                     \
    PD_CLONES(void, name, (float *P, float *M, const float *W, int64_t n, const update_constants *m), (P, M, W, n, m)) \
    {                                                                                                                  \
        search_pass(P, M, W, n, m, kind, decays);                                                                      \
    }
SEARCH(search, NO_MOMENTUM, false)
SEARCH(search_decay, NO_MOMENTUM, true)
SEARCH(search_heavy, HEAVY_BALL, false)
SEARCH(search_heavy_decay, HEAVY_BALL, true)
SEARCH(search_nesterov, NESTEROV_FORM, false)
SEARCH(search_nesterov_decay, NESTEROV_FORM, true)

PD_INLINE float rounded(float x, int send)
{
    if (send == SEND_FLOAT16) return pd_f32_from_f16(pd_f16_from_f32(x));
    if (send == SEND_BFLOAT16) return pd_f32_from_bf16(pd_bf16_from_f32(x));
    return x;
}

PD_INLINE void add_pass(float *after, const float *before, float *restrict P, int64_t n, float rate, int send,
                        bool weights)
{
/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float w = before[i], u = P[i] * rate;
        float sum = weights ? rounded(w + u, send) : w + rounded(u, send);
        P[i] = weights ? sum - w : rounded(u, send);
        after[i] = sum;
    }
}

#define ADD(name, send, weights)                                                                                       \
    PD_CLONES(void, name, (float *after, const float *before, float *P, int64_t n, float rate),                        \
              (after, before, P, n, rate))                                                                             \
    {                                                                                                                  \
        add_pass(after, before, P, n, rate, send, weights);                                                            \
    }
ADD(add, SEND_FLOAT32, false)
ADD(add_float16, SEND_FLOAT16, false)
ADD(add_bfloat16, SEND_BFLOAT16, false)
ADD(add_to_float16, SEND_FLOAT16, true)
ADD(add_to_bfloat16, SEND_BFLOAT16, true)

/* Adds to n weights their change along the direction P, and stores the change in P. M is NULL without momentum. `after`
 * may be the same memory as `before`. */
static void update_elements(float *after, const float *before, float *P, float *M, int64_t n,
                            const update_constants *constants)
{
    static void (*const searches[3][2])(float *P, float *M, const float *W, int64_t n, const update_constants *m) = {
        [NO_MOMENTUM] = { search, search_decay },
        [HEAVY_BALL] = { search_heavy, search_heavy_decay },
        [NESTEROV_FORM] = { search_nesterov, search_nesterov_decay },
    };
    static void (*const adds[4][2])(float *after, const float *before, float *P, int64_t n, float rate) = {
        [SEND_FLOAT32] = { add, add },
        [SEND_FLOAT16] = { add_float16, add_to_float16 },
        [SEND_BFLOAT16] = { add_bfloat16, add_to_bfloat16 },
        [SEND_DEFAULT] = { add, add },
    };

    searches[!constants->has_momentum ? NO_MOMENTUM
             : constants->nesterov    ? NESTEROV_FORM
                                      : HEAVY_BALL][constants->decays](P, M, before, n, constants);
    adds[constants->send][constants->sends_weights](after, before, P, n, constants->rate);
}

#define TINY 1e-16f /* added to a norm before a division by it, since the norm may be 0 */

float pd_shampoo_correction(double beta, int64_t t)
{
    return 1.0f - powf((float)beta, (float)t);
}

float pd_shampoo_factor_correction(const double *h, int64_t t)
{
    return h[BIAS_CORRECTION] != 0 && h[BETA2] < 1 && h[DROP_WEIGHT] == 0 ? pd_shampoo_correction(h[BETA2], t) : 1.0f;
}

/* Returns the weight of a new term of a factor or of the corrected eigenvalues. */
static double weight_of(const double *h)
{
    return h[BETA2] == 1 || h[DROP_WEIGHT] != 0 ? 1 : 1 - h[BETA2];
}

bool pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot)
{
    int64_t start = pd_shampoo_start(h);

    (void)plan, (void)slot;
    return count == start || (count > start && count % (int64_t)h[FREQUENCY] == 0);
}

/* What a thread needs to compute one block. */
typedef struct work {
    const pd_unit *unit;
    shampoo_layout slots;
    shampoo_box box;
    pd_block_view gradient; /* the block's gradient; the L2 penalty is added to it if there is one */
    float *filtered, *direction, *products, *whitened; /* pointers into the thread's scratch memory */
    /* n: number of elements of the block; run: length of the contiguous runs in which they lie in the parameter */
    int64_t n, run;
} work;

/* Returns the index in the whole parameter of element i of the block. Element i must be the first one of a contiguous
 * run. */
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
    return h[WEIGHT_DECAY] != 0 && pd_shampoo_decay(h) == DECAY_L2;
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
    w.whitened = w.products + parts.products;
    return w;
}

static void add_wide(double *L, double w1, const float *term, double w2, int64_t side)
{
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j <= i; j++) L[i * side + j] = w1 * L[i * side + j] + w2 * (double)term[i * side + j];
}

/* Finds a slot of each factor of the block; NULL for dimensions without one. */
static void find_matrices(const work *w, int which, float **at)
{
    const shampoo_own *own = w->unit->plan->own;

    for (int d = 0; d < w->gradient.rank; d++)
        at[d] = own->place[d] < 0 ? NULL
                                  : w->unit->slot[pd_shampoo_slot(w->unit->plan, &w->slots, w->unit->index, d, which)];
}

/* Returns the block of which factor d is computed: the gradient, or for KL-Shampoo the gradient multiplied by the roots
 * of all dimensions but d. */
static pd_block_view whiten(const work *w, int d)
{
    pd_block_view view = w->gradient;
    float *R[PD_MAX_RANK];

    if (!pd_shampoo_is_kl(w->unit->hyper)) return view;
    find_matrices(w, INVERSE, R);
    R[d] = NULL;
    pd_block_rotate(w->whitened, &view, R, PD_AS_IS, w->whitened + aligned(w->n));
    view.at = w->whitened;
    if (view.rank == 2) view.stride = view.size[1];
    return view;
}

static void update_factors(const work *w)
{
    const double *h = w->unit->hyper;
    float *factor[PD_MAX_RANK];

    find_matrices(w, FACTOR, factor);
    for (int d = 0; d < w->gradient.rank; d++) {
        int64_t side = w->gradient.size[d];
        double rest = weight_of(h);
        float *L = factor[d];
        pd_block_view view;
        if (L == NULL) continue;
        view = whiten(w, d);
        if (h[NORMALIZE] != 0) rest *= (double)side / (double)w->n;
        if (pd_shampoo_factors_are_wide(h)) {
            pd_block_gram(pd_mat_dense(w->products, side, side), 0, 1, &view, d);
            add_wide((double *)(void *)L, h[BETA2], w->products, rest, side);
        } else {
            pd_block_gram(pd_mat_dense(L, side, side), (float)h[BETA2], (float)rest, &view, d);
        }
    }
}

PD_CLONES(void, average_squares, (float *restrict V, const float *restrict H, int64_t n, float beta2, float gain),
          (V, H, n, beta2, gain))
{
    for (int64_t i = 0; i < n; i++) V[i] = beta2 * V[i] + gain * (H[i] * H[i]);
}

/* Updates the corrected eigenvalues of a block: averages of the squared gradient in the bases of this step. */
static void update_eigenvalues(const work *w)
{
    const double *h = w->unit->hyper;
    float *Q[PD_MAX_RANK];

    find_matrices(w, VECTORS, Q);
    pd_block_rotate(w->whitened, &w->gradient, Q, PD_AS_IS, w->whitened + aligned(w->n));
    for (int64_t i = 0; i < w->n; i += w->run)
        average_squares(state_at(w, w->slots.corrected, i), w->whitened + i, w->run, (float)h[BETA2],
                        (float)weight_of(h));
}

static double graft_beta2(const double *h)
{
    if (pd_shampoo_graft(h) == GRAFT_ADAGRAD) return 1;
    if (isfinite(h[GRAFTING_BETA2])) return h[GRAFTING_BETA2];
    return pd_shampoo_graft(h) == GRAFT_ADAM ? 0.999 : 0.99;
}

static pd_graft graft_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    bool tiny = pd_shampoo_graft(h) == GRAFT_ADAGRAD || h[SEMANTICS] == RELEASE_2026;
    double beta2 = graft_beta2(h), epsilon = tiny ? 1e-10 : 1e-8;
    pd_graft graft = { .kind = PD_GRAFT_PLAIN,
                       .w1 = (float)beta2,
                       .w2 = beta2 == 1 ? 1.0f : (float)(1 - beta2),
                       .divisor = 1,
                       .clip = 1,
                       .correction = 1 };

    if (isfinite(h[GRAFTING_EPSILON])) epsilon = h[GRAFTING_EPSILON];
    graft.epsilon = (float)epsilon;
    if (pd_shampoo_graft_has_moment(h)) graft.kind = PD_GRAFT_CORRECTED;
    if (pd_shampoo_graft(h) == GRAFT_ADAM && beta2 < 1) graft.correction = pd_shampoo_correction(beta2, unit->count);
    return graft;
}

static void update_moment(const work *w)
{
    pd_graft graft = graft_of(w->unit);

    for (int64_t i = 0; w->slots.second_moment >= 0 && i < w->n; i += w->run)
        pd_graft_accumulate(state_at(w, w->slots.second_moment, i), gradient_at(w, i), w->run, &graft);
}

/* Updates the factors of a block, and the second moment of its graft, in steps that start to compute new roots: the
 * roots must be those of the new factors. In other steps pd_shampoo_step makes these updates, while the block is in the
 * caches. */
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

static filter_constants filter_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    bool ahead = h[BETA3] >= 0;
    filter_constants filter = { .beta1 = (float)h[BETA1],
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

/* Computes the filtered gradient D of a block in w->filtered, and makes w->gradient a view of it. If gradients are not
 * filtered, changes nothing: D is the gradient itself. Returns the sum of the squares of the graft's direction; 0
 * without grafting. */
static double filter(work *w, const pd_graft *graft)
{
    const filter_constants f = filter_of(w->unit);
    double squares = 0;

    for (int64_t i = 0; i < w->n; i += w->run) {
        const float *D = gradient_at(w, i);
        if (w->slots.filtered_grad >= 0) {
            filter_elements(w->filtered + i, state_at(w, w->slots.filtered_grad, i), D, w->run, &f);
            D = w->filtered + i;
        }
        if (pd_shampoo_graft(w->unit->hyper) != GRAFT_NONE)
            squares += pd_graft_squares(D, state_at(w, w->slots.second_moment, i), w->run, graft);
    }
    if (w->slots.filtered_grad >= 0) w->gradient = pd_block_look(w->filtered, &w->box.shape, &w->box.block, NULL);
    return squares;
}

/* Returns whether a matrix of this many rows is the identity. Others are told at their first element, as a rule. */
static bool is_identity(const float *R, int64_t side)
{
    for (int64_t i = 0; i < side * side; i++)
        if (R[i] != (i % (side + 1) == 0 ? 1.0f : 0.0f)) return false;
    return true;
}

/* Returns whether each dimension that has a factor has a root, or a basis. One that was never computed is as it began:
 * all zeros, so that its first diagonal element is 0, or the identity. */
static bool has_roots(const work *w)
{
    float *R[PD_MAX_RANK];

    find_matrices(w, INVERSE, R);
    for (int d = 0; d < w->gradient.rank; d++)
        if (R[d] != NULL &&
            (pd_shampoo_begins_with_identity(w->unit->hyper) ? is_identity(R[d], w->gradient.size[d]) : R[d][0] == 0))
            return false;
    return true;
}

/* Returns whether the direction of the step is the block's own, and not that of the graft. Before the start step it is
 * the graft's. After it, a root can be missing only if root_delay is not 0. Without a graft, roots that begin as the
 * identity are used from the first step on. A first-order optimizer alone is a graft for ever. */
static bool goes_its_own_way(const work *w)
{
    const pd_unit *unit = w->unit;

    if (unit->hyper[PRECONDITIONER] >= PRECONDITION_SGD) return false;
    if (pd_shampoo_begins_with_identity(unit->hyper) && unit->hyper[GRAFTING] == GRAFT_NONE) return true;
    if (unit->count < pd_shampoo_start(unit->hyper)) return false;
    return unit->plan->root_delay == 0 || has_roots(w);
}

/* Multiplies the filtered gradient by the inverse roots of the block. Returns the sum of the direction's squares. */
static double multiply_roots(const work *w)
{
    const shampoo_own *own = w->unit->plan->own;
    float *R[PD_MAX_RANK];

    find_matrices(w, INVERSE, R);
    if (own->n_factored == w->gradient.rank)
        return pd_block_contract(w->direction, &w->box.shape, &w->box.block, &w->gradient, R, w->products, pd_squares);
    pd_block_rotate(w->direction, &w->gradient, R, PD_AS_IS, w->products);
    return pd_squares(w->direction, w->n);
}

PD_CLONES(void, correct_half, (float *restrict P, const float *restrict V, int64_t n, float correction, float epsilon),
          (P, V, n, correction, epsilon))
{
    for (int64_t i = 0; i < n; i++) P[i] /= sqrtf(V[i] / correction) + epsilon;
}

static void correct_power(float *P, const float *V, int64_t n, float correction, float epsilon, float exponent)
{
    for (int64_t i = 0; i < n; i++) P[i] /= powf(V[i] / correction, exponent) + epsilon;
}

/* Divides the filtered gradient, rotated into the bases, by a power of the corrected eigenvalues, and rotates it back.
 * Returns the sum of the direction's squares. */
static double divide_by_eigenvalues(const work *w)
{
    const pd_unit *unit = w->unit;
    double exponent = ((const shampoo_own *)unit->plan->own)->exponent[0];
    float correction = pd_shampoo_factor_correction(unit->hyper, unit->count), epsilon = (float)unit->hyper[EPSILON];
    float *Q[PD_MAX_RANK], *rotated = w->whitened;
    pd_block_view view = pd_block_look(rotated, &w->box.shape, &w->box.block, NULL);

    find_matrices(w, VECTORS, Q);
    pd_block_rotate(rotated, &w->gradient, Q, PD_AS_IS, w->products);
    for (int64_t i = 0; i < w->n; i += w->run) {
        const float *V = state_at(w, w->slots.corrected, i);
        if (exponent == 0.5)
            correct_half(rotated + i, V, w->run, correction, epsilon);
        else
            correct_power(rotated + i, V, w->run, correction, epsilon, (float)exponent);
    }
    pd_block_rotate(w->direction, &view, Q, PD_TRANSPOSED, w->products);
    return pd_squares(w->direction, w->n);
}

/* Writes the filtered gradient to w->direction, without gaps. */
static void copy_gradient(const work *w)
{
    for (int64_t i = 0; i < w->n; i += w->run)
        memmove(w->direction + i, gradient_at(w, i), (size_t)w->run * sizeof *w->direction);
}

/* Orthogonalizes the filtered gradient. Returns the sum of the direction's squares. */
static double orthogonalize(const work *w)
{
    static const pd_polar how = {
        .form = PD_POLAR_TORCH, .factors = { 3.4445f, -4.7750f, 2.0315f }, .eps = 1e-8f, .steps = PD_SHAMPOO_POLAR_STEPS
    };

    copy_gradient(w);
    pd_polar_factor(pd_mat_dense(w->direction, w->gradient.size[0], w->gradient.size[1]), &how, w->products);
    return pd_squares(w->direction, w->n);
}

static double take_signs(const work *w)
{
    pd_graft sign = { .kind = PD_GRAFT_SIGN };

    copy_gradient(w);
    pd_graft_directions(w->direction, w->direction, NULL, w->n, &sign);
    return pd_squares(w->direction, w->n);
}

/* Writes the direction of a block to w->direction. Returns the factor that gives it the length of the graft's
 * direction, whose sum of squares is graft_squares; 1 without grafting. */
static float precondition(const work *w, double graft_squares)
{
    const double *h = w->unit->hyper;
    double squares = pd_shampoo_is_corrected(h)                   ? divide_by_eigenvalues(w)
                     : h[PRECONDITIONER] == PRECONDITION_SPECTRAL ? orthogonalize(w)
                     : h[PRECONDITIONER] == PRECONDITION_SIGN     ? take_signs(w)
                                                                  : multiply_roots(w);

    return h[GRAFTING] == GRAFT_NONE ? 1.0f : pd_norm(graft_squares) / (pd_norm(squares) + TINY);
}

/* Writes the direction of the graft to w->direction, or zeros without grafting. Used before the block's first roots
 * exist. */
static void go_with_graft(const work *w, const pd_graft *graft)
{
    for (int64_t i = 0; i < w->n; i += w->run) {
        if (pd_shampoo_graft(w->unit->hyper) == GRAFT_NONE)
            memset(w->direction + i, 0, (size_t)w->run * sizeof(float));
        else
            pd_graft_directions(w->direction + i, gradient_at(w, i), state_at(w, w->slots.second_moment, i), w->run,
                                graft);
    }
}

/* Returns the factor of the weights in the direction. */
static double decay_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    double peak = ((const shampoo_own *)unit->plan->own)->peak_lr;

    switch (pd_shampoo_decay(h)) {
    case DECAY_L2: return 0;
    case DECAY_CORRECTED: return h[WEIGHT_DECAY] * h[LR] / peak;
    case DECAY_INDEPENDENT: return h[WEIGHT_DECAY] / peak;
    }
    return h[WEIGHT_DECAY];
}

static update_constants constants_of(const pd_unit *unit, float length)
{
    const double *h = unit->hyper;
    double decay = decay_of(unit);

    return (update_constants){ .length = length,
                               .decays = decay != 0 && !pd_shampoo_averages(h),
                               .decay = (float)decay,
                               .has_momentum = h[MOMENTUM] != 0,
                               .nesterov = h[NESTEROV] != 0,
                               .momentum = (float)h[MOMENTUM],
                               .gain = (float)(1 - h[DAMPENING]),
                               .rate = -(float)h[LR],
                               .send = (int)h[COMMUNICATION_DTYPE],
                               .sends_weights = h[COMMUNICATE_PARAMS] != 0 };
}

/* Returns the sum of the weights of all steps, this one included. A step has the square of its rate as its weight.
 * Steps that the parameter has missed count with the rate of this one. */
static double sum_of(const pd_unit *unit)
{
    int at = pd_shampoo_layout(unit->hyper).sum;
    const double *sum = (const double *)(const void *)unit->slot[at],
                 *last = (const double *)(const void *)unit->slot[at + 1];

    return *sum + ((double)unit->count - *last) * unit->hyper[LR] * unit->hyper[LR];
}

void pd_shampoo_weigh(const pd_unit *unit)
{
    int at = pd_shampoo_layout(unit->hyper).sum;

    *(double *)(void *)unit->slot[at] = sum_of(unit);
    *(double *)(void *)unit->slot[at + 1] = (double)unit->count;
}

bool pd_shampoo_weighs_nothing(const pd_plan *plan, const double *h, int64_t count)
{
    (void)plan, (void)count;
    return pd_shampoo_layout(h).sum < 0;
}

/* The constants of an update with averages of iterates. The weights are W, and Z is another series of weights: d = Z -
 * W. P is the direction.
 *
 *     d <- d - decay (W + d)
 *     W <- W + both rate P + share d                                       with the old d
 *     d <- (1 - share) d + rest rate P */
typedef struct average_constants {
    float length, rate, decay, share, keep, both, rest;
} average_constants;

static average_constants averages_of(const pd_unit *unit, float length)
{
    const double *h = unit->hyper;
    double share = 1 - h[EVAL_COEFF], sum = 0;

    if (h[EVAL_COEFF] < 0) {
        sum = sum_of(unit);
        share = sum > 0 ? h[LR] * h[LR] / sum : 0;
    }
    return (average_constants){ .length = length,
                                .rate = -(float)h[LR],
                                .decay = (float)(h[LR] * decay_of(unit)),
                                .share = (float)share,
                                .keep = (float)(1 - share),
                                .both = (float)(1 - (1 - share) * h[TRAIN_COEFF]),
                                .rest = (float)((1 - share) * h[TRAIN_COEFF]) };
}

/* Replaces the direction P by the change of the weights. */
PD_CLONES(void, average_elements,
          (float *restrict P, float *restrict d, const float *restrict W, int64_t n,
           const average_constants *constants),
          (P, d, W, n, constants))
{
    const average_constants a = *constants;

    for (int64_t i = 0; i < n; i++) {
        float p = P[i] * a.length * a.rate, apart = d[i] - a.decay * (W[i] + d[i]);
        P[i] = a.both * p + a.share * apart;
        d[i] = a.keep * apart + a.rest * p;
    }
}

/* Makes an update with averages of iterates. */
static void average_weights(const work *w, float length)
{
    const pd_unit *unit = w->unit;
    average_constants a = averages_of(unit, length);

    for (int64_t i = 0; i < w->n; i += w->run) {
        int64_t at = whole(w, i);
        average_elements(w->direction + i, state_at(w, w->slots.apart, i), unit->before + at, w->run, &a);
        add(unit->after + at, unit->before + at, w->direction + i, w->run, 1);
        if (unit->update != NULL) memcpy(unit->update + at, w->direction + i, (size_t)w->run * sizeof(float));
    }
}

PD_CLONES(void, read_out, (float *x, const float *W, const float *d, int64_t n, float factor), (x, W, d, n, factor))
{
    for (int64_t i = 0; i < n; i++) x[i] = W[i] + factor * d[i];
}

void pd_shampoo_readout(const pd_readout *r)
{
    const float *d = r->plan->elements > 0 ? r->slot[pd_shampoo_layout(r->hyper).apart] + r->first : NULL;

    read_out(r->out, r->weights, d, r->n, (float)(1 - 1 / r->hyper[TRAIN_COEFF]));
}

static void update_weights(const work *w, float length)
{
    const pd_unit *unit = w->unit;
    update_constants m = constants_of(unit, length);

    for (int64_t i = 0; i < w->n; i += w->run) {
        int64_t at = whole(w, i);
        update_elements(unit->after + at, unit->before + at, w->direction + i, state_at(w, w->slots.momentum, i),
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
    if (w.slots.corrected >= 0) update_eigenvalues(&w);
    squares = filter(&w, &graft);
    if (goes_its_own_way(&w))
        length = precondition(&w, squares);
    else
        go_with_graft(&w, &graft);
    if (w.slots.apart >= 0)
        average_weights(&w, length);
    else
        update_weights(&w, length);
}
