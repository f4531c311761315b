/* muon - the optimizer Muon: momentum, orthogonalized (polar.h). Names, defaults and order of operations are those of
 * torch.optim.Muon; with form = keller the order is that of Keller Jordan's program. For a matrix with weights W and
 * gradient G, with the name of the stored state on the right:
 *
 *     B <- B + (1 - momentum) (G - B)                           stored as momentum_buffer
 *     U = G + momentum (B - G) with nesterov, else B
 *     O = U with all its singular values brought near 1, times the scale that adjust_lr_fn chooses
 *     W <- W - lr weight_decay W;   W <- W - lr O
 *
 * With normuon (arXiv:2510.05491) each row of O is divided by the root of a moving average of its mean square, stored
 * as variance_neuron, and O is brought back to the norm that it had.
 *
 * Parameters that are no matrices step by AdamW, as in Keller Jordan's class with auxiliary Adam, with hyperparameters
 * of their own (adam_lr). With form = keller a parameter of 4 dimensions is a matrix of its first one and the others,
 * and one of 3, 5 or more is a batch of matrices, which its last two dimensions have. */
#include <stdlib.h>

#include "convert.h"
#include "first_order.h"
#include "hyperball.h"
#include "kernels.h"
#include "polar.h"

enum {
    LR,
    WEIGHT_DECAY,
    MOMENTUM,
    NESTEROV,
    FACTOR_A,
    FACTOR_B,
    FACTOR_C,
    EPS,
    STEPS,
    ADJUST,
    FORM,
    COMPUTE,
    POLYNOMIAL,
    NORMUON,
    NORMUON_BETA,
    ADAM_LR,
    ADAM_BETA1,
    ADAM_BETA2,
    ADAM_EPS,
    ADAM_DECAY,
    MU_DTYPE,
    HYPERBALL
};
enum { MOMENTUM_BUFFER, DIRECTION, VARIANCE_NEURON };
enum { EXP_AVG, EXP_AVG_SQ };
enum { ADJUST_NONE, ADJUST_ORIGINAL, ADJUST_MATCH_RMS, ADJUST_SPECTRAL, ADJUST_IN_OUT };
enum { MOST_STEPS = 99 };
/* number that NorMuon adds to the roots of mean squares */
#define NORMUON_EPS 1e-8f

#define FACTOR(i, preset, of)                                                                                          \
    {                                                                                                                  \
        "ns_coefficients[" #i "]", PD_REAL, preset, -INFINITY, INFINITY, NULL, "factor of " of " in an iteration",     \
            false, false                                                                                               \
    }
#define OTHERS "parameters that are no matrices"

static const pd_hyper muon_hypers[] = {
    [LR] = PD_HYPER_LR(1e-3),
    [WEIGHT_DECAY] = PD_HYPER_DECAY(0.1, "factor of lr by which the weights shrink (decoupled)"),
    [MOMENTUM] = { "momentum", PD_REAL, 0.95, 0, INFINITY, NULL, "decay of the gradient's average", true, false },
    [NESTEROV] = { "nesterov", PD_FLAG, 1, 0, 1, NULL, "Nesterov momentum", true, false },
    [FACTOR_A] = FACTOR(0, 3.4445, "X"),
    [FACTOR_B] = FACTOR(1, -4.7750, "X X' X"),
    [FACTOR_C] = FACTOR(2, 2.0315, "X X' X X' X"),
    [EPS] = { "eps", PD_REAL, 1e-7, 0, INFINITY, NULL, "least norm by which the direction is divided", false, false },
    [STEPS] = { "ns_steps", PD_INT, 5, 1, MOST_STEPS, NULL, "iterations that orthogonalize", false, false },
    [ADJUST] = { "adjust_lr_fn", PD_CHOICE, ADJUST_NONE, 0, 0, "none|original|match_rms_adamw|spectral_norm|in_out",
                 "scale of the direction by the sides of the matrix; none is original", false, false },
    [FORM] = { "form", PD_CHOICE, PD_POLAR_TORCH, 0, 0, "torch|keller", "program whose steps are taken", false, false },
    [COMPUTE] = { "compute", PD_CHOICE, 0, 0, 0, "float32|bfloat16",
                  "precision inside the iterations; both programs have bfloat16", false, false },
    [POLYNOMIAL] = { "polynomial", PD_CHOICE, 0, 0, 0, "newton_schulz|polar_express",
                     "factors of the iterations: ns_coefficients, or those of arXiv:2505.16932", false, false },
    [NORMUON] = { "normuon", PD_FLAG, 0, 0, 1, NULL, "even the rows of the direction out (arXiv:2510.05491)", false,
                  false },
    [NORMUON_BETA] = { "muon_beta2", PD_REAL, 0.95, 0, 1 - 0x1p-53, NULL, "decay of the rows' mean squares (normuon)",
                       true, false },
    [ADAM_LR] = { "adam_lr", PD_REAL, 3e-4, 0, INFINITY, NULL, "learning rate of " OTHERS, true, false },
    [ADAM_BETA1] = { "adam_betas[0]", PD_REAL, 0.9, 0, 1 - 0x1p-53, NULL, "decay of the gradient's average of " OTHERS,
                     true, false },
    [ADAM_BETA2] = { "adam_betas[1]", PD_REAL, 0.95, 0, 1 - 0x1p-53, NULL,
                     "decay of the squared gradient's average of " OTHERS, true, false },
    [ADAM_EPS] = { "adam_eps", PD_REAL, 1e-10, 0, INFINITY, NULL, "added to the denominator of " OTHERS, true, false },
    [ADAM_DECAY] = { "adam_weight_decay", PD_REAL, 0, 0, INFINITY, NULL, "weight_decay of " OTHERS, true, false },
    [MU_DTYPE] = PD_HYPER_STORED("mu_dtype", "the momentum"),
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    { .name = NULL },
};

/* What a parameter's shape decides. */
typedef struct kind {
    bool adam;             /* it steps by AdamW */
    int64_t rows, cols, n; /* size of a matrix, and number of them */
    float scale;           /* scale of the orthogonalized direction */
} kind;

/* Returns the scale that adjust_lr_fn chooses for matrices of these sides. */
static float scale_of(const double *h, double rows, double cols)
{
    if (h[ADJUST] == ADJUST_MATCH_RMS) return (float)(0.2 * sqrt(fmax(rows, cols)));
    if (h[ADJUST] == ADJUST_SPECTRAL) return (float)sqrt(rows / cols);
    return (float)sqrt(fmax(1, h[ADJUST] == ADJUST_IN_OUT ? cols / rows : rows / cols));
}

static kind kind_of(const pd_shape *shape, const double *h)
{
    const int rank = shape->rank, first = rank == 4 ? 1 : rank - 1; /* first: dimension that begins the columns */
    kind k = { .adam = rank < 2 || (rank > 2 && h[FORM] == PD_POLAR_TORCH), .n = 1, .cols = 1 };

    if (k.adam) return k;
    for (int d = 0; d + 1 < first; d++) k.n *= shape->dim[d];
    for (int d = first; d < rank; d++) k.cols *= shape->dim[d];
    k.rows = shape->dim[first - 1];
    k.scale = scale_of(h, (double)shape->dim[rank - 2], (double)shape->dim[rank - 1]);
    return k;
}

/* Lists the matrices of a parameter as blocks. */
static int plan_blocks(pd_plan *plan, const kind *k, pd_error *err)
{
    const int rank = plan->shape.rank, first = rank == 4 ? 0 : rank - 2; /* first dimension that a matrix has */

    if (k->n > PD_MAX_BLOCKS || k->rows > INT32_MAX || k->cols > INT32_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "muon: %lld matrices of %lld x %lld: expected at most %d, with sides below 2^31",
                       (long long)k->n, (long long)k->rows, (long long)k->cols, PD_MAX_BLOCKS);
    plan->blocks = calloc((size_t)k->n, sizeof *plan->blocks);
    if (plan->blocks == NULL) return PD_NO_MEMORY;
    plan->n_blocks = (size_t)k->n;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t left = i;
        for (int d = rank - 1; d >= 0; d--) {
            plan->blocks[i].size[d] = d < first ? 1 : plan->shape.dim[d];
            plan->blocks[i].start[d] = d < first ? left % plan->shape.dim[d] : 0;
            if (d < first) left /= plan->shape.dim[d];
        }
    }
    return PD_OK;
}

static int plan_matrices(pd_plan *plan, const kind *k, const double *h)
{
    pd_slot_spec rows = { .name = "variance_neuron", .number = -1, .shape = plan->shape };
    int slot = pd_plan_slot(plan, &(pd_slot_spec){ .name = "momentum_buffer",
                                                   .number = -1,
                                                   .shape = plan->shape,
                                                   .storage = pd_stored_as(h[MU_DTYPE]) });

    if (slot >= 0)
        slot = pd_plan_slot(
            plan, &(pd_slot_spec){
                      .name = "direction", .number = -1, .shape = plan->shape, .temporary = true, .in_after = true });
    for (int d = rows.shape.rank == 4 ? 1 : rows.shape.rank - 1; d < rows.shape.rank; d++) rows.shape.dim[d] = 1;
    if (slot >= 0 && h[NORMUON] != 0) slot = pd_plan_slot(plan, &rows);
    if (slot < 0) return slot;
    plan->scratch_floats = (size_t)pd_polar_scratch(k->rows, k->cols);
    plan->flops = (double)k->n * pd_polar_flops(k->rows, k->cols, (int)h[STEPS]);
    plan->large_products = pd_polar_is_large(k->rows, k->cols);
    return PD_OK;
}

static int muon_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    const kind k = kind_of(&plan->shape, h);
    int rc;

    (void)stats;
    *(kind *)plan->own = k;
    if (k.adam || plan->elements == 0)
        return pd_plan_slots(plan, (const char *const[]){ "exp_avg", "exp_avg_sq", NULL });
    rc = plan_blocks(plan, &k, err);
    if (rc == PD_OK) rc = plan_matrices(plan, &k, h);
    return rc == PD_OK ? pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY }) : rc;
}

static bool has_no_matrix(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)hyper, (void)count;
    return ((const kind *)plan->own)->adam || plan->elements == 0;
}

/* The directions are written for a range of elements. */
PD_CLONES(void, average,
          (float *restrict u, float *restrict b, const float *g, int64_t n, float momentum, bool nesterov),
          (u, b, g, n, momentum, nesterov))
{
    const float gain = 1 - momentum;

    for (int64_t i = 0; i < n; i++) {
        float average = b[i] + gain * (g[i] - b[i]), ahead = g[i] + momentum * (average - g[i]);
        b[i] = average;
        u[i] = nesterov ? ahead : average;
    }
}

static void filter(const pd_unit *unit)
{
    const pd_run r = pd_run_of(unit);
    const double *h = unit->hyper;

    average(pd_run_slot(unit, DIRECTION), pd_run_slot(unit, MOMENTUM_BUFFER), r.gradient, r.n, (float)h[MOMENTUM],
            h[NESTEROV] != 0);
}

static void scale(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

/* Divides each row of O by the root of the average v of its mean square, and brings O back to its norm. */
static void even_rows_out(pd_mat O, float *v, float beta)
{
    const double before = pd_sum_squares(O.at, O.rows * O.cols);
    double after = 0;

    for (int64_t i = 0; i < O.rows; i++) {
        float *row = O.at + i * O.cols, square = (float)(pd_sum_squares(row, O.cols) / (double)O.cols);
        v[i] = v[i] + (1 - beta) * (square - v[i]);
        scale(row, 1 / (sqrtf(v[i]) + NORMUON_EPS), O.cols);
        after += pd_sum_squares(row, O.cols);
    }
    scale(O.at, (float)(sqrt(before) / fmax(sqrt(after), (double)NORMUON_EPS)), O.rows * O.cols);
}

static void orthogonalize(const pd_unit *unit)
{
    const kind *k = unit->plan->own;
    const double *h = unit->hyper;
    const pd_polar how = { .form = (pd_polar_form)h[FORM],
                           .bfloat16 = h[COMPUTE] != 0,
                           .express = h[POLYNOMIAL] != 0,
                           .factors = { (float)h[FACTOR_A], (float)h[FACTOR_B], (float)h[FACTOR_C] },
                           .eps = (float)h[EPS],
                           .steps = (int)h[STEPS] };
    pd_mat O = pd_mat_dense(unit->slot[DIRECTION] + unit->index * k->rows * k->cols, k->rows, k->cols);

    pd_polar_factor(O, &how, unit->scratch);
    if (h[NORMUON] != 0) even_rows_out(O, unit->slot[VARIANCE_NEURON] + unit->index * k->rows, (float)h[NORMUON_BETA]);
}

typedef struct factors {
    float keep, rate, scale; /* w <- keep w - rate (scale o) */
    bool rounds;             /* scale o is rounded to bfloat16 */
} factors;

PD_CLONES(void, move, (const pd_unit *unit, factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    const float *o = pd_run_slot(unit, DIRECTION);

#pragma GCC ivdep /* the arrays of old and new weights and of the direction are identical or disjoint */
    for (int64_t i = 0; i < r.n; i++) {
        float u = f.scale * o[i], rounded = pd_f32_from_bf16(pd_bf16_from_f32(u));
        r.after[i] = f.keep * r.before[i] - f.rate * (f.rounds ? rounded : u);
    }
}

typedef struct adam_factors {
    float keep, rate, gain1, gain2, bias1, bias2, eps;
} adam_factors;

PD_CLONES(void, adam, (const pd_unit *unit, adam_factors f), (unit, f))
{
    const pd_run r = pd_run_of(unit);
    float *m = pd_run_slot(unit, EXP_AVG), *v = pd_run_slot(unit, EXP_AVG_SQ);

#pragma GCC ivdep /* the arrays of old and new weights are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < r.n; i++) {
        float g = r.gradient[i], average = m[i] + f.gain1 * (g - m[i]), square = v[i] + f.gain2 * (g * g - v[i]);
        m[i] = average;
        v[i] = square;
        r.after[i] = f.keep * r.before[i] - f.rate * (average / f.bias1 / (sqrtf(square / f.bias2) + f.eps));
    }
}

static void update_others(const pd_unit *unit)
{
    const double *h = unit->hyper;

    adam(unit, (adam_factors){ .keep = (float)(1 - h[ADAM_LR] * h[ADAM_DECAY]),
                               .rate = (float)h[ADAM_LR],
                               .gain1 = (float)(1 - h[ADAM_BETA1]),
                               .gain2 = (float)(1 - h[ADAM_BETA2]),
                               .bias1 = (float)pd_bias(h[ADAM_BETA1], unit->count),
                               .bias2 = (float)pd_bias(h[ADAM_BETA2], unit->count),
                               .eps = (float)h[ADAM_EPS] });
}

/* Keller Jordan's program scales the direction, torch's the rate. */
static void update(const pd_unit *unit)
{
    const kind *k = unit->plan->own;
    const double *h = unit->hyper;
    const bool keller = h[FORM] == PD_POLAR_KELLER;

    if (k->adam)
        update_others(unit);
    else
        move(unit, (factors){ .keep = (float)(1 - h[LR] * h[WEIGHT_DECAY]),
                              .rate = (float)(keller ? h[LR] : h[LR] * (double)k->scale),
                              .scale = keller ? k->scale : 1,
                              .rounds = keller && h[COMPUTE] != 0 });
}

const pd_optimizer_ops pd_muon = {
    .name = "muon",
    .about = "orthogonalized momentum for matrices, AdamW for others (torch.optim.Muon)",
    .hypers = muon_hypers,
    .plan = muon_plan,
    .own_bytes = sizeof(kind),
    .gradient_most = PD_SQUARE_MOST,
    .phases = { { .name = "filter", .kind = PD_RANGES, .run = filter, .skip = has_no_matrix },
                { .name = "orthogonalize", .kind = PD_BLOCKS, .run = orthogonalize, .skip = has_no_matrix },
                { .name = "update", .kind = PD_RANGES, .run = update } },
};
