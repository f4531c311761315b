/* kl_shampoo - KL-Shampoo and KL-SOAP (arXiv:2509.03378), as the authors' program computes them (yorkerlin/KL-Methods).
 * Each factor is gathered from the gradient whitened by the other factors, so no graft is needed. G is a block of the
 * gradient, W are the weights, Q_d the basis of dimension d, n_d its size, and e_d the vector eigen_sqrt_inv: estimates
 * of 1 / sqrt(eigenvalue) of factor L_d.
 *
 *     M   <- beta1 M + (1 - beta1) G,  H = M rotated into the bases
 *     N   =  H D / (1 + eps D) rotated out of the bases, with D = product of the e_d
 *     W   <- W - lr N;   W <- W - lr weight_decay W
 *     E   =  G rotated into the bases
 *     l_d =  mean of (E times the e of the other dimensions)^2 over all dimensions but d
 *     e_d <- 1 / sqrt(shampoo_beta / e_d^2 + (1 - shampoo_beta) l_d)
 *     L_d <- shampoo_beta L_d + (1 - shampoo_beta) n_d / size of G (G, whitened along the other dimensions, contracted)
 *
 * using_klsoap puts Adam in the bases in place of H D, as in soap.c: M is then kept in rotated coordinates. With
 * normalize_grads N is divided by its root mean square. using_damping adds eps (product of the tau) / tau_d to l_d,
 * where tau_d is the mean of e_d^2. using_clamping limits e_d to between 10 and max_clamp_value, by the size of d.
 *
 * With orthogonalize, N of a matrix is orthogonalized as muon does it (polar.h), and keeps its norm.
 *
 * In tensors of three dimensions a new e_d takes part in the next statistics of the same step, as in the authors'
 * program (see scales_of). Dimensions of size 1 are left out. Tasks refresh the bases as in rotated.h, without sorting.
 *
 * Upstream takes tensors of two and three dimensions alone, has no blocks, and its default type of all numbers is
 * bfloat16. Here vectors are trained by Adam without bias correction, and all numbers are float32. */
#include "rotated.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu.h"
#include "hyperball.h"
#include "kernels.h"

enum { SOAP = PD_ROTATED_HYPERS, INIT_FACTOR, DAMPING, CLAMPING, MAX_CLAMP, CAST_DTYPE, HYPERBALL, ORTHOGONAL };
enum { LARGE_SIDE = 10000 };

static const pd_hyper kl_hypers[] = {
    PD_ROTATED_TABLE(1e-4, 0.9, 0.98),
    [SOAP] = { "using_klsoap", PD_FLAG, 0, 0, 1, NULL, "KL-SOAP: Adam in the bases", false },
    [INIT_FACTOR] = { "init_factor", PD_REAL, 0.1, 1e-30, 1e30, NULL, "first estimate of all eigenvalues", false },
    [DAMPING] = { "using_damping", PD_FLAG, 0, 0, 1, NULL, "add eps to the factors' eigenvalues", false },
    [CLAMPING] = { "using_clamping", PD_FLAG, 1, 0, 1, NULL, "limit the inverse roots of the eigenvalues", false },
    [MAX_CLAMP] = { "max_clamp_value", PD_REAL, 4000, 10, 1e30, NULL,
                    "largest inverse root of an eigenvalue, in dimensions that are as large", false },
    [CAST_DTYPE] = { "cast_dtype", PD_CHOICE, 0, 0, 0, "float32", "type of the arithmetic; only float32", false },
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    PD_ORTHOGONAL_TABLE(ORTHOGONAL),
    { .name = NULL },
};

static int kl_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    (void)declared;
    return pd_rotated_check("kl_shampoo", now->value, err);
}

/* Adds up the operations of a step. For each element and each factor of side n: n for the factor (half a product) and
 * 4 n to rotate the direction in and out. The gradient is rotated into all bases, and for each factor into the others;
 * one of these rotations begins the first one. */
static double flops_of(const pd_block *block, int rank)
{
    double sum = 0;

    for (int d = 0; d < rank; d++) sum += (5 + 2 * (rank - (d < rank - 1))) * (double)block->size[d];
    return sum * (double)pd_block_elements(block, rank);
}

/* Tells the user of a dimension so large that its factor takes more than the whole model, such as that of an
 * embedding. */
static void note_large_factors(pd_plan *plan)
{
    for (int d = 0; plan->n_blocks > 0 && d < plan->shape.rank; d++)
        if (plan->blocks[0].size[d] > LARGE_SIDE)
            snprintf(
                plan->note, sizeof plan->note,
                "kl_shampoo keeps two matrices of %lld rows for a dimension: set block_size, or give this parameter "
                "another optimizer by a rule before",
                (long long)plan->blocks[0].size[d]);
}

static int kl_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    pd_rotated_want want = { .shape = pd_shape_merged(&declaration->shape, 0),
                             .rotates = h[SOAP] != 0,
                             .values = (float)(1 / sqrt(h[INIT_FACTOR])) };
    int rc;

    (void)stats;
    if (want.shape.rank == 0) want.shape = (pd_shape){ .rank = 1, .dim = { 1 } };
    want.squares = h[SOAP] != 0 || want.shape.rank < 2;
    want.most_side = want.shape.rank < 2 ? 0 : INT64_MAX;
    if ((rc = pd_rotated_plan(plan, declaration, &want, err)) != PD_OK || want.most_side == 0) return rc;
    note_large_factors(plan);
    for (size_t b = 0; b < plan->n_blocks; b++) plan->flops += flops_of(&plan->blocks[b], plan->shape.rank);
    pd_rotated_plan_orthogonal(plan, h, ORTHOGONAL);
    return pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY });
}

/* What a thread needs to compute one block. */
typedef struct work {
    const pd_unit *unit;
    pd_block_view gradient;
    int64_t n;
    float *E, *X, *room; /* two blocks without gaps, and the work memory of rotations */
    /* bases, the inverse roots of the eigenvalues, and memory for the new ones */
    float *Q[PD_MAX_RANK], *e[PD_MAX_RANK], *now[PD_MAX_RANK];
    double *sum; /* memory for as many numbers as the largest dimension has indices */
} work;

static work look(const pd_unit *unit)
{
    const pd_plan *plan = unit->plan;
    int64_t n = pd_block_elements(unit->block, plan->shape.rank), most = 0;
    work w = { .unit = unit, .n = n };

    w.gradient = pd_block_look(unit->gradient, &plan->shape, unit->block, unit->scratch);
    w.E = unit->scratch + pd_block_view_scratch(&plan->shape, unit->block);
    w.X = w.E + (n + 15) / 16 * 16;
    w.room = w.X + (n + 15) / 16 * 16;
    w.sum = (double *)(void *)(w.room + pd_block_rotate_scratch(unit->block, w.gradient.rank));
    for (int d = 0; d < w.gradient.rank; d++) most = w.gradient.size[d] > most ? w.gradient.size[d] : most;
    w.now[0] = (float *)(void *)(w.sum + most);
    for (int d = 1; d < w.gradient.rank; d++) w.now[d] = w.now[d - 1] + w.gradient.size[d - 1];
    pd_rotated_find(plan, unit->index, PD_BASIS, unit->slot, w.Q);
    pd_rotated_find(plan, unit->index, PD_VALUES, unit->slot, w.e);
    return w;
}

/* Returns a view of a block without gaps of the same size. */
static pd_block_view dense(const work *w, float *at)
{
    pd_block_view view = w->gradient;

    view.at = at;
    if (view.rank == 2) view.stride = view.size[1];
    return view;
}

/* Rotates a block into the bases of the dimensions in the set `of`, or out of them. */
static void rotate(const work *w, float *out, const pd_block_view *view, unsigned of, pd_turn turn)
{
    float *Q[PD_MAX_RANK];

    for (int d = 0; d < view->rank; d++) Q[d] = of >> d & 1 ? w->Q[d] : NULL;
    pd_block_rotate(out, view, Q, turn, w->room);
}

/* Returns the numbers that belong to a row of a block: the product of the scales of all dimensions but the last. */
static float row_scale(const pd_block_view *view, float *const *scale, int64_t row)
{
    float product = 1;

    for (int d = view->rank - 2; d >= 0; d--) {
        int64_t i = row % view->size[d];
        row /= view->size[d];
        if (scale[d] != NULL) product *= scale[d][i];
    }
    return product;
}

PD_CLONES(void, scale_row, (float *x, const float *by, float all, int64_t n), (x, by, all, n))
{
    for (int64_t i = 0; i < n; i++) x[i] *= by != NULL ? by[i] * all : all;
}

/* Multiplies a block without gaps by scale[d] along each dimension d; NULL: by 1. */
static void scale_block(const pd_block_view *view, int64_t n, float *const *scale)
{
    int64_t cols = view->size[view->rank - 1];

    for (int64_t row = 0; row < n / cols; row++)
        scale_row(view->at + row * cols, scale[view->rank - 1], row_scale(view, scale, row), cols);
}

PD_CLONES(void, whiten_row, (float *x, const float *by, float all, float eps, int64_t n), (x, by, all, eps, n))
{
    for (int64_t i = 0; i < n; i++) {
        float d = by[i] * all;
        x[i] *= d / (1 + eps * d);
    }
}

static void whiten(const work *w, float *H)
{
    int last = w->gradient.rank - 1;
    int64_t cols = w->gradient.size[last];

    for (int64_t row = 0; row < w->n / cols; row++)
        whiten_row(H + row * cols, w->e[last], row_scale(&w->gradient, w->e, row), (float)w->unit->hyper[EPS], cols);
}

PD_CLONES(void, follow, (float *restrict M, const float *restrict G, int64_t n, float gain), (M, G, n, gain))
{
    for (int64_t i = 0; i < n; i++) M[i] += gain * (G[i] - M[i]);
}

/* Averages the gradient, and writes the average of the block to `out`, without gaps. */
static void average(const work *w, float *out)
{
    const pd_unit *unit = w->unit;
    int64_t run = pd_block_run_length(&unit->plan->shape, unit->block);

    for (int64_t i = 0; i < w->n; i += run) {
        int64_t at = pd_rotated_whole(unit, i, run);
        follow(unit->slot[EXP_AVG] + at, unit->gradient + at, run, (float)(1 - unit->hyper[BETA1]));
        memcpy(out + i, unit->slot[EXP_AVG] + at, (size_t)run * sizeof *out);
    }
}

/* Computes the direction of a block: Adam in the bases, or the average whitened by the estimates of the eigenvalues. */
static void direct(const work *w)
{
    const pd_rotated *own = w->unit->plan->own;
    unsigned all = (1u << w->gradient.rank) - 1;
    pd_block_view view = dense(w, w->X);

    if (own->squares) {
        rotate(w, w->X, &w->gradient, all, PD_AS_IS);
        pd_rotated_adam(w->unit, w->X, w->n);
    } else {
        average(w, w->X);
        rotate(w, w->X, &view, all, PD_AS_IS);
        whiten(w, w->X);
    }
    rotate(w, w->X, &view, all, PD_TRANSPOSED);
    pd_rotated_direct(w->unit, w->X);
}

/* Chooses the scales of all dimensions but d for the statistics of d. They are the estimates of before this step, but
 * in three dimensions the authors' program goes from the last dimension to the first: the eigenvalues of dimension 1
 * see the new ones of dimension 2. The factor and the eigenvalues of dimension 0 see the new ones of dimension 1, but
 * the old ones of dimension 2. */
static void scales_of(const work *w, int d, bool of_factor, float **scale)
{
    int rank = w->gradient.rank;

    for (int k = 0; k < rank; k++) scale[k] = k == d ? NULL : w->e[k];
    if (rank != 3) return;
    if (d == 1 && !of_factor) scale[2] = w->now[2];
    if (d == 0) scale[1] = w->now[1];
}

PD_CLONES(void, add_squares, (double *restrict sum, const float *restrict x, float by, int64_t n), (sum, x, by, n))
{
    for (int64_t j = 0; j < n; j++) {
        double value = (double)(x[j] * by);
        sum[j] += value * value;
    }
}

PD_CLONES(void, scale_into,
          (float *restrict to, const float *restrict x, const float *restrict by, float all, int64_t n),
          (to, x, by, all, n))
{
    for (int64_t j = 0; j < n; j++) to[j] = x[j] * (by[j] * all);
}

/* Adds to sum[i], for each index i of dimension d, the squares of the elements of E times their scales. */
static void add_energies(const work *w, float *const *scale, int d, double *sum)
{
    int last = w->gradient.rank - 1;
    int64_t cols = w->gradient.size[last], inner = 1;

    for (int k = d + 1; k < last; k++) inner *= w->gradient.size[k];
    for (int64_t row = 0; row < w->n / cols; row++) {
        float by = row_scale(&w->gradient, scale, row);
        if (d == last) {
            add_squares(sum, w->E + row * cols, by, cols);
        } else {
            scale_into(w->X, w->E + row * cols, scale[last], by, cols);
            sum[row / inner % w->gradient.size[d]] += pd_sum_squares(w->X, cols);
        }
    }
}

static double mean_square(const float *e, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)e[i] * (double)e[i];
    return sum / (double)n;
}

/* Returns what using_damping adds to the eigenvalues of dimension d: eps times the product of the means of e^2 of the
 * other dimensions. */
static double damping_of(const work *w, int d)
{
    double damping = w->unit->hyper[EPS];

    if (w->unit->hyper[DAMPING] == 0) return 0;
    for (int k = 0; k < w->gradient.rank; k++)
        if (k != d) damping *= mean_square(w->e[k], w->gradient.size[k]);
    return damping;
}

static float limit_of(const double *h, int64_t side)
{
    return h[CLAMPING] == 0 ? INFINITY : (float)fmax(10, fmin((double)side, h[MAX_CLAMP]));
}

/* Computes the new inverse roots of dimension d's eigenvalues. */
static void renew(const work *w, int d)
{
    const pd_rotated *own = w->unit->plan->own;
    int64_t side = w->gradient.size[d];
    float *scale[PD_MAX_RANK], most = limit_of(w->unit->hyper, side), gain = (float)(1 - own->shampoo_beta);
    double damping = damping_of(w, d);

    scales_of(w, d, false, scale);
    memset(w->sum, 0, (size_t)side * sizeof *w->sum);
    add_energies(w, scale, d, w->sum);
    for (int64_t i = 0; i < side; i++) {
        float value = 1 / (w->e[d][i] * w->e[d][i]), mean = (float)(w->sum[i] * (double)side / (double)w->n + damping),
              root;
        if (!isfinite(value)) value = 0;
        root = 1 / sqrtf(value + gain * (mean - value));
        w->now[d][i] = !isfinite(root) ? 0 : root < most ? root : most;
    }
}

/* Updates the factor of dimension d. X is the gradient, rotated into the bases of the other dimensions. */
static void accumulate(const work *w, int d)
{
    pd_block_view view = dense(w, w->X);
    float *scale[PD_MAX_RANK];

    scales_of(w, d, true, scale);
    scale_block(&view, w->n, scale);
    pd_rotated_accumulate(w->unit, &view, d, (double)view.size[d] / (double)w->n);
}

/* Updates factors and eigenvalues of a block, with the bases and eigenvalues of before. */
static void observe(const work *w)
{
    int last = w->gradient.rank - 1;
    unsigned all = (2u << last) - 1;
    pd_block_view view = dense(w, w->X);

    rotate(w, w->X, &w->gradient, all & ~(1u << last), PD_AS_IS);
    rotate(w, w->E, &view, 1u << last, PD_AS_IS);
    accumulate(w, last);
    for (int d = last; d >= 0; d--) renew(w, d);
    for (int d = 0; d < last; d++) {
        rotate(w, w->X, &w->gradient, all & ~(1u << d), PD_AS_IS);
        accumulate(w, d);
    }
    for (int d = 0; d <= last; d++) memcpy(w->e[d], w->now[d], (size_t)w->gradient.size[d] * sizeof *w->e[d]);
}

static void kl_block(const pd_unit *unit)
{
    const pd_rotated *own = unit->plan->own;
    work w = look(unit);

    if (unit->count > 1) direct(&w);
    if (own->n_factored == 0) return;
    if (unit->count > 1) observe(&w);
    for (int d = 0; unit->count == 1 && d < w.gradient.rank; d++)
        pd_rotated_accumulate(unit, &w.gradient, d, (double)w.gradient.size[d] / (double)w.n);
}

static void kl_update(const pd_unit *unit)
{
    pd_rotated_update(unit, unit->hyper[LR], unit->count > 1);
}

const pd_optimizer_ops pd_kl_shampoo = {
    .name = "kl_shampoo",
    .about = "KL-Shampoo and KL-SOAP: factors from the gradient whitened by the other factors",
    .hypers = kl_hypers,
    .check = kl_check,
    .plan = kl_plan,
    .phases = { { .name = "whiten", .kind = PD_BLOCKS, .run = kl_block, .fold = { PD_FOLD_SUM } },
                { .name = "orthogonalize",
                  .kind = PD_WHOLE,
                  .run = pd_rotated_orthogonalize,
                  .skip = pd_rotated_leaves_direction },
                { .name = "update", .kind = PD_RANGES, .run = kl_update } },
    .capture_phase = 3,
    .adopt_phase = 0,
    .own_bytes = sizeof(pd_rotated),
    .due = pd_rotated_due,
    .task = pd_rotated_task,
    .adopt = pd_rotated_adopt,
    .gradient_most = 1e10f,
    .grain = pd_rotated_grain,
};
