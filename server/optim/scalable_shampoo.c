/* scalable_shampoo - Google's Distributed Shampoo (arXiv:1802.09568, arXiv:2002.09018) as its JAX program of spring
 * 2022 computes it. G is the gradient, W are the weights, S_i the statistics of a block's dimension i, and X_i is their
 * inverse root:
 *
 *     S_i <- w1 S_i + w2 (block of G contracted with itself over all dimensions but i)  for each block, every
 *         statistics_compute_steps
 *     X_i <- (S_i + ridge I)^(-1/p)  every preconditioning_compute_steps; after a failure X_i stays
 *     P   =  G multiplied by the X of its block along each dimension
 *     D   =  the direction of a first-order optimizer, the graft (graft.h)
 *     U   =  P |D| / (|P| + 1e-16);      U' = U + weight_decay W,  D' = D + weight_decay W
 *     m_U <- beta1 m_U + w U',  m_D <- beta1 m_D + w D'
 *     m, u = (m_U, U') from start_preconditioning_step on, (m_D, D') before
 *     W   <- W - learning_rate (nesterov ? w u + beta1 m : m)
 *
 * w1 is beta2, and w2 is 1 - beta2 (1 if beta2 is 1). w is 1 - beta1 with moving_average_for_momentum, otherwise 1. |P|
 * is the norm of P over the whole parameter. m_U and m_D are the momenta of U and D.
 *
 * partition.h merges dimensions and defines the blocks; root_order returns p. A parameter without dimensions, or with a
 * dimension above skip_preconditioning_dim_size_gt, has no statistics, and P = D. The JAX program ("upstream") counts
 * steps from 0, this file from 1.
 *
 * Some code looks as if it could be simplified, but must give the same bits as the JAX program. Norms overflow as
 * float32 norms do. The choice between the two momenta is a weighted sum, so a NaN in either one spreads. The roots of
 * all parameters depend on the largest block of the model (padding_coupling). */
#include "scalable_shampoo.h"

#include <math.h>

#include "block_products.h"
#include "cpu.h"
#include "graft.h"
#include "optimizer_ops.h"
#include "partition.h"
#include "root.h"

/* 2^53 - 1, the largest count of steps that may be configured: every whole number up to it is exact in a double */
#define LARGEST_COUNT 9007199254740991.0
#define TINY 1e-16f /* added to a norm before a division by it, since the norm may be 0 */

static const pd_hyper hyper_table[] = {
    [LEARNING_RATE] = { "learning_rate", PD_REAL, 0.1, -INFINITY, INFINITY, NULL, "learning rate (required upstream)",
                        true },
    [BLOCK_SIZE] = { "block_size", PD_INT, 128, -1, 2147483647, NULL,
                     "largest side of a preconditioner and of merged dimensions; 0 or -1: nothing is cut or merged "
                     "(required upstream)",
                     false },
    [BETA1] = { "beta1", PD_REAL, 0.9, 0, 1, NULL, "decay of both momenta, below 1", true },
    [BETA2] = { "beta2", PD_REAL, 0.999, 0, 1, NULL,
                "decay of statistics and of the RMSProp graft, above 0; exactly 1: plain sums", true },
    [DIAGONAL_EPSILON] = { "diagonal_epsilon", PD_REAL, 1e-10, 0, INFINITY, NULL,
                           "added to the square root in the Adagrad and RMSProp grafts", true },
    [MATRIX_EPSILON] = { "matrix_epsilon", PD_REAL, 1e-6, 0, INFINITY, NULL,
                         "initial diagonal of the statistics, and ridge relative to their largest eigenvalue", true },
    [WEIGHT_DECAY] = { "weight_decay", PD_REAL, 0, 0, INFINITY, NULL,
                       "factor of the weights added to both directions (L2 penalty)", true },
    [START_STEP] = { "start_preconditioning_step", PD_INT, 5, 0, LARGEST_COUNT, NULL,
                     "first step (counted from 0) with the preconditioned direction", true },
    [ROOT_INTERVAL] = { "preconditioning_compute_steps", PD_INT, 1, 1, LARGEST_COUNT, NULL,
                        "steps from one computation of the roots to the next", true },
    [STATISTICS_INTERVAL] = { "statistics_compute_steps", PD_INT, 1, 1, LARGEST_COUNT, NULL,
                              "steps from one update of the statistics to the next", true },
    [INTERPRET_SHAPES] = { "best_effort_shape_interpretation", PD_FLAG, 1, 0, 1, NULL, "merge small dimensions",
                           false },
    [GRAFT_TYPE] = { "graft_type", PD_CHOICE, GRAFT_SGD, 0, 0,
                     "SGD|ADAGRAD|RMSPROP|RMSPROP_NORMALIZED|SQRT_N|ADAGRAD_NORMALIZED",
                     "optimizer whose step length the preconditioned direction takes", false },
    [NESTEROV] = { "nesterov", PD_FLAG, 1, 0, 1, NULL, "Nesterov momentum", true },
    [EXPONENT_OVERRIDE] = { "exponent_override", PD_INT, 0, 0, 1 << 20, NULL,
                            "order of the inverse root; 0: twice the number of dimensions", true },
    [FAILURE_THRESHOLD] = { "inverse_failure_threshold", PD_REAL, 0.1, 0, INFINITY, NULL,
                            "a root with at least this error is not used", true },
    [MOVING_AVERAGE] = { "moving_average_for_momentum", PD_FLAG, 0, 0, 1, NULL,
                         "multiply new terms of the momenta by 1 - beta1", true },
    [SKIP_SIZE] = { "skip_preconditioning_dim_size_gt", PD_INT, 4096, 0, 2147483647, NULL,
                    "parameters with a larger dimension take the steps of graft_type's optimizer", false },
    [CLIP] = { "clip_by_scaled_gradient_norm", PD_REAL, 0, 0, INFINITY, "none",
               "largest root mean square of the RMSProp grafts", true },
    [MEMORY_REDUCTION] = { "best_effort_memory_usage_reduction", PD_FLAG, 0, 0, 1, NULL,
                           "store state in int8 and int16", false },
    [PRECISION] = { "precision", PD_CHOICE, 0, 0, 0, "highest|high|default",
                    "accepted and ignored: products in a root always have the highest precision", true },
    [SHARDED] = { "shard_optimizer_states", PD_FLAG, 0, 0, 1, NULL,
                  "compute as upstream's sharded mode does: roots are used one step later", false },
    [ROOT_METHOD] = { "root_method", PD_CHOICE, PD_ROOT_NEWTON, 0, 0, PD_ROOT_METHODS,
                      "method that computes roots; newton is upstream's", false },
    [ROOT_DELAY] = { "root_delay", PD_INT, 0, -1, LARGEST_COUNT, "ready",
                     "steps from statistics to the use of their root, at most preconditioning_compute_steps; ready: as "
                     "soon as it is done, so results depend on timing",
                     false },
    [ROOT_RETRIES] = { "root_retries", PD_INT, 0, 0, 6, NULL,
                       "number of retries of a failed root, by eigh64 with larger ridges", true },
    [PADDING_COUPLING] = { "padding_coupling", PD_FLAG, 1, 0, 1, NULL,
                           "newton: compute roots as if padded to the model's largest block, as upstream does", false },
    [REDUCTION_SCOPE] = { "memory_reduction_scope", PD_CHOICE, SCOPE_ALL, 0, 0, "all|momentum",
                          "scope of best_effort_memory_usage_reduction: momentum: momenta (int8); all: also statistics "
                          "and preconditioners (int16)",
                          false },
    [DIAGONAL_DTYPE] = { "diagonal_statistics_dtype", PD_CHOICE, 0, 0, 0, "float32|bfloat16",
                         "storage type of the graft's diagonal statistics", false },
    [NAN_ROOTS_LEAK] = { "nan_roots_leak", PD_FLAG, 0, 0, 1, NULL,
                         "a root that is NaN replaces the last good one: a defect of upstream's sharded mode, for "
                         "replays",
                         false },
    { .name = NULL },
};

/* Indices of a parameter's slots. -1: the parameter does not have this slot. */
typedef struct layout {
    int momentum, diagonal_momentum, diagonal_statistics;
    /* Slots that only preconditioned parameters have. `statistics` is the first slot of the first statistic; each
     * statistic has `each` slots: the statistic, its inverse root, and for some methods an eigenbasis. */
    int direction, errors, statistics;
    int each;
} layout;
/* the slots of one statistic, as offsets from its first slot */
enum { STATISTIC, PRECONDITIONER, BASIS };

static bool graft_is_normalized(const double *h)
{
    return h[GRAFT_TYPE] == GRAFT_RMSPROP_NORMALIZED || h[GRAFT_TYPE] == GRAFT_ADAGRAD_NORMALIZED;
}

static bool graft_is_clipped(const double *h)
{
    return h[CLIP] > 0 && (h[GRAFT_TYPE] == GRAFT_RMSPROP || h[GRAFT_TYPE] == GRAFT_RMSPROP_NORMALIZED);
}

static bool every(double interval, int64_t count)
{
    return (count - 1) % (int64_t)interval == 0;
}

static int check_hypers(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;

    (void)declared;
    if (h[BETA1] >= 1)
        return pd_fail(err, PD_INVALID_ARGUMENT, "beta1 of scalable_shampoo must be at least 0 and below 1, got %g",
                       h[BETA1]);
    if (h[BETA2] <= 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "beta2 of scalable_shampoo must be above 0 and at most 1, got %g",
                       h[BETA2]);
    if (h[ROOT_DELAY] > h[ROOT_INTERVAL])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "root_delay of scalable_shampoo: expected at most preconditioning_compute_steps, %.0f, got %.0f",
                       h[ROOT_INTERVAL], h[ROOT_DELAY]);
    return PD_OK;
}

static const pd_model_stat model_stats[] = { { "largest_block", PD_FOLD_MAX }, { NULL, PD_FOLD_MAX } };

static bool quantizes_statistics(const double *h)
{
    return h[MEMORY_REDUCTION] != 0 && h[REDUCTION_SCOPE] == SCOPE_ALL && h[SHARDED] == 0;
}

static bool graft_has_diagonal(const double *h)
{
    return h[GRAFT_TYPE] != GRAFT_SGD && h[GRAFT_TYPE] != GRAFT_SQRT_N;
}

static pd_shape merged_shape(const pd_shape *shape, const double *h)
{
    return h[INTERPRET_SHAPES] != 0 ? pd_shape_merged(shape, (int64_t)h[BLOCK_SIZE]) : *shape;
}

static bool is_preconditioned(const pd_shape *shape, const double *h)
{
    return shape->rank > 0 && !pd_shape_exceeds(shape, (int64_t)h[SKIP_SIZE]);
}

static int root_order(const pd_plan *plan, const double *h)
{
    return h[EXPONENT_OVERRIDE] > 0 ? (int)h[EXPONENT_OVERRIDE] : 2 * plan->shape.rank;
}

static void prepass(const pd_declaration *declaration, double *stats)
{
    const double *h = declaration->hypers.value;
    int64_t elements = 0;
    pd_shape merged;

    stats[0] = 0;
    if (pd_shape_elements(&declaration->shape, &elements) != PD_OK || elements == 0 ||
        !is_preconditioned(&declaration->shape, h))
        return;
    merged = merged_shape(&declaration->shape, h);
    stats[0] = (double)pd_shape_largest_side(&merged, (int64_t)h[BLOCK_SIZE]);
}

static layout layout_of(const pd_plan *plan, const double *h)
{
    layout slots = {
        .direction = -1, .errors = -1, .statistics = -1, .each = h[ROOT_METHOD] == PD_ROOT_TRACKED ? 3 : 2
    };
    int n = 0;

    slots.momentum = n++;
    slots.diagonal_momentum = h[GRAFT_TYPE] == GRAFT_SQRT_N ? -1 : n++;
    slots.diagonal_statistics = graft_has_diagonal(h) ? n++ : -1;
    if (plan->n_blocks == 0) return slots;
    slots.direction = n++;
    slots.errors = n++;
    slots.statistics = n;
    return slots;
}

static int slot_of(const layout *slots, int64_t statistic, int which)
{
    return slots->statistics + (int)statistic * slots->each + which;
}

static int plan_diagonals(pd_plan *plan, const pd_shape *declared, const double *h)
{
    pd_slot_spec momentum = { .name = "momentum", .number = -1, .shape = *declared };
    pd_slot_spec diagonal = { .name = "diagonal_momentum", .number = -1, .shape = *declared };
    pd_slot_spec statistics = { .name = "diagonal_statistics", .number = -1, .shape = *declared };

    if (h[MEMORY_REDUCTION] != 0) momentum.storage = diagonal.storage = PD_STORE_INT8;
    if (h[DIAGONAL_DTYPE] != 0) statistics.storage = PD_STORE_BF16;
    if (pd_plan_slot(plan, &momentum) < 0) return PD_NO_MEMORY;
    if (h[GRAFT_TYPE] != GRAFT_SQRT_N && pd_plan_slot(plan, &diagonal) < 0) return PD_NO_MEMORY;
    if (graft_has_diagonal(h) && pd_plan_slot(plan, &statistics) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

static int plan_statistic(pd_plan *plan, const pd_shape *declared, const layout *slots, int64_t k, const double *h)
{
    int64_t side = pd_statistics_side(plan, k);
    int8_t from = (int8_t)pd_shape_merged_from(declared, &plan->shape, (int)(k % plan->shape.rank));
    pd_slot_spec matrix = { .number = (int)k,
                            .shape = { .rank = 2, .dim = { side, side } },
                            .identity = true,
                            .block = (int)(k / plan->shape.rank),
                            .follows_known = from >= 0,
                            .follows = { from, from } };
    pd_slot_spec statistic = matrix, preconditioner = matrix, basis = matrix;
    pd_task_spec task = { .block = (int)k, .n_inputs = slots->each - 1, .n_outputs = slots->each - 1 };

    if (quantizes_statistics(h)) {
        statistic.storage = preconditioner.storage = PD_STORE_INT16;
        statistic.diagonal_apart = preconditioner.diagonal_apart = true;
        statistic.blockwise = preconditioner.blockwise = true;
    }
    statistic.name = "statistics";
    statistic.fill = (float)h[MATRIX_EPSILON];
    /* In int16 each column is rounded by its own scale, so the stored matrix is not exactly symmetric. */
    statistic.symmetric = !quantizes_statistics(h);
    preconditioner.name = "preconditioners";
    preconditioner.fill = 1;
    basis.name = "eigenbasis";
    task.input[0] = slot_of(slots, k, STATISTIC);
    task.output[0] = slot_of(slots, k, PRECONDITIONER);
    task.input[1] = task.output[1] = slot_of(slots, k, BASIS);
    task.exponent = root_order(plan, h);
    task.cost = pd_root_flops((pd_root_method)h[ROOT_METHOD], side, root_order(plan, h));
    task.scratch = pd_root_scratch((pd_root_method)h[ROOT_METHOD], h[ROOT_RETRIES] > 0, side, root_order(plan, h));
    if (pd_plan_slot(plan, &statistic) < 0 || pd_plan_slot(plan, &preconditioner) < 0) return PD_NO_MEMORY;
    if (slots->each > 2 && pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how many floats of scratch memory a thread needs for a block: room for a copy of the block, and either for
 * the contraction with its roots or for the new term of a statistic. */
static int64_t scratch_of(const pd_plan *plan, const pd_block *block, const double *h)
{
    int64_t products = pd_block_contract_scratch(&plan->shape, block);

    for (int d = 0; quantizes_statistics(h) && d < plan->shape.rank; d++)
        products = larger(products, block->size[d] * block->size[d]);
    return pd_block_view_scratch(&plan->shape, block) + products;
}

/* Sets the plan's scratch memory to the most that any block needs, and adds up the floating-point operations of a step.
 * All blocks are checked, since the largest one may need less than a smaller one: a large block may be used where it
 * lies in the tensor, while a smaller one is copied. */
static void plan_work(pd_plan *plan, const double *h)
{
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const pd_block *block = &plan->blocks[b];
        plan->scratch_floats = (size_t)larger((int64_t)plan->scratch_floats, scratch_of(plan, block, h));
        plan->large_products = plan->large_products || pd_block_is_large(block, plan->shape.rank);
        /* Operations for each element of the block and each dimension d: as many as the block has indices in d for the
         * statistic (half of a product), and twice as many for preconditioning (a whole product). */
        for (int d = 0; d < plan->shape.rank; d++)
            plan->flops += 3.0 * (double)pd_block_elements(block, plan->shape.rank) * (double)block->size[d];
    }
}

static int plan_blocks(pd_plan *plan, const pd_declaration *declaration, pd_error *err)
{
    const double *h = declaration->hypers.value;
    layout slots;
    int rc;

    plan->shape = merged_shape(&declaration->shape, h);
    if ((rc = pd_shape_check_blocks(&plan->shape, (int64_t)h[BLOCK_SIZE], "block_size", err)) != PD_OK) return rc;
    if ((rc = pd_plan_blocks(plan, (int64_t)h[BLOCK_SIZE])) != PD_OK) return rc;
    slots = layout_of(plan, h);
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "direction",
                                            .number = -1,
                                            .shape = declaration->shape,
                                            .temporary = true,
                                            .in_after = true }) < 0)
        return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "inverse_pth_root_errors",
                                            .number = -1,
                                            .shape = { .rank = 1, .dim = { pd_statistics_count(plan) } },
                                            .follows_known = true,
                                            .follows = { -1 } }) < 0)
        return PD_NO_MEMORY;
    plan->errors_slot = slots.errors;
    for (int64_t k = 0; k < pd_statistics_count(plan); k++)
        if ((rc = plan_statistic(plan, &declaration->shape, &slots, k, h)) != PD_OK) return rc;
    plan_work(plan, h);
    return PD_OK;
}

static int plan_parameter(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    int rc = plan_diagonals(plan, &declaration->shape, h);

    (void)stats;
    plan->root_delay = h[ROOT_DELAY] < 0                       ? PD_ROOT_READY
                       : h[ROOT_DELAY] == 0 && h[SHARDED] != 0 ? 1
                                                               : (int)fmin(h[ROOT_DELAY], 1 << 30);
    if (rc != PD_OK || plan->elements == 0 || !is_preconditioned(&declaration->shape, h)) return rc;
    return plan_blocks(plan, declaration, err);
}

static bool roots_are_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot)
{
    (void)plan, (void)slot;
    return every(h[ROOT_INTERVAL], count);
}

static int compute_root(pd_task_view *task)
{
    const double *h = task->hyper;
    int64_t side = pd_statistics_side(task->plan, task->spec->block);
    pd_root_want want = { .method = (pd_root_method)h[ROOT_METHOD],
                          .p = root_order(task->plan, h),
                          .epsilon = h[MATRIX_EPSILON],
                          .padded_side = h[PADDING_COUPLING] != 0 ? (int64_t)task->stats[0] : 0,
                          .padding = quantizes_statistics(h) ? 0 : 1,
                          .most_error = h[FAILURE_THRESHOLD],
                          .retries = (int)h[ROOT_RETRIES] };
    pd_root_report report = { 0 };
    pd_mat Q = { 0 };
    int rc;

    if (want.method == PD_ROOT_TRACKED) {
        Q = pd_mat_dense(task->output[1], side, side);
        for (int64_t i = 0; i < side * side; i++) Q.at[i] = task->input[1][i];
    }
    rc =
        pd_root(pd_mat_dense(task->output[0], side, side), Q, pd_mat_dense(task->input[0], side, side), &want, &report);
    task->error = rc == PD_OUT_OF_RANGE ? NAN : report.error;
    task->condition = report.condition;
    if (rc != PD_OK) return rc;
    return (float)report.error < (float)h[FAILURE_THRESHOLD] ? PD_OK : PD_OUT_OF_RANGE;
}

/* Stores the error of a root in the slot that operators read, by the rules of the JAX program. With nan_roots_leak it
 * also repeats a defect of that program: a root that is NaN overwrites the last good root. */
static void record_error(const pd_task_view *task, float *const *slot)
{
    const double *h = task->hyper;
    layout slots = layout_of(task->plan, h);
    int64_t k = task->spec->block, side = pd_statistics_side(task->plan, k);
    float *X = slot[slot_of(&slots, k, PRECONDITIONER)];

    if (task->error > 0 && (float)task->error != (float)h[FAILURE_THRESHOLD])
        slot[slots.errors][k] = (float)task->error;
    if (h[NAN_ROOTS_LEAK] == 0 || !isnan(task->error) || quantizes_statistics(h)) return;
    for (int64_t i = 0; i < side * side; i++) X[i] = NAN;
}

enum { PHASE_STATISTICS, PHASE_NORM, PHASE_PRECONDITION, PHASE_GRAFT, PHASE_CLIP, PHASE_UPDATE };
/* indices of the two sums of squares that block_direction reports for each block */
enum { OF_DIRECTION, OF_GRAFT };

PD_CLONES(void, blend, (float *restrict S, float w1, const float *restrict term, float w2, int64_t n),
          (S, w1, term, w2, n))
{
    for (int64_t i = 0; i < n; i++) S[i] = w1 * S[i] + w2 * term[i];
}

/* Updates the statistics of one block. `scratch` has room for a square matrix as large as the block's largest side. It
 * is used only for statistics that are stored in int16. */
static void update_statistics(const pd_unit *unit, const pd_block_view *view, float *scratch)
{
    const double *h = unit->hyper;
    const float w1 = (float)h[BETA2], w2 = h[BETA2] == 1 ? 1.0f : (float)(1 - h[BETA2]);
    layout slots = layout_of(unit->plan, h);

    for (int d = 0; d < view->rank; d++) {
        int64_t side = view->size[d];
        float *S = unit->slot[slot_of(&slots, unit->index * view->rank + d, STATISTIC)];
        if (quantizes_statistics(h)) {
            pd_mat term = pd_mat_dense(scratch, side, side);
            pd_block_gram(term, 0, 1, view, d);
            pd_mirror(term);
            blend(S, w1, scratch, w2, side * side);
        } else {
            pd_block_gram(pd_mat_dense(S, side, side), w1, w2, view, d);
        }
    }
}

/* Updates the statistics of a block in steps that start to compute new roots: the roots must be those of the new
 * statistics. In other steps block_direction updates the statistics, while the block is in the caches. */
static void block_statistics(const pd_unit *unit)
{
    pd_block_view view = pd_block_look(unit->gradient, &unit->plan->shape, unit->block, unit->scratch);

    update_statistics(unit, &view, unit->scratch + pd_block_view_scratch(&unit->plan->shape, unit->block));
}

static bool no_statistics_for_roots(const pd_plan *plan, const double *h, int64_t count)
{
    return plan->n_blocks == 0 || !every(h[STATISTICS_INTERVAL], count) || !roots_are_due(plan, h, count, NULL);
}

static void block_direction(const pd_unit *unit)
{
    const pd_plan *plan = unit->plan;
    const double *h = unit->hyper;
    layout slots = layout_of(plan, h);
    pd_block_view view = pd_block_look(unit->gradient, &plan->shape, unit->block, unit->scratch);
    float *scratch = unit->scratch + pd_block_view_scratch(&plan->shape, unit->block);
    float *X[PD_MAX_RANK];

    if (every(h[STATISTICS_INTERVAL], unit->count) && !roots_are_due(plan, h, unit->count, NULL))
        update_statistics(unit, &view, scratch);
    for (int d = 0; d < view.rank; d++) X[d] = unit->slot[slot_of(&slots, unit->index * view.rank + d, PRECONDITIONER)];
    unit->partial[OF_DIRECTION] =
        pd_block_contract(unit->slot[slots.direction], &plan->shape, unit->block, &view, X, scratch, pd_squares);
    if (!graft_has_diagonal(h))
        unit->partial[OF_GRAFT] = pd_block_view_sum(&view, h[GRAFT_TYPE] == GRAFT_SGD ? pd_squares : pd_sign_squares);
}

static bool no_blocks(const pd_plan *plan, const double *h, int64_t count)
{
    (void)h, (void)count;
    return plan->n_blocks == 0;
}

static void gradient_norm(const pd_unit *unit)
{
    unit->partial[0] = pd_squares(unit->gradient + unit->first, unit->n);
}

static bool no_gradient_norm(const pd_plan *plan, const double *h, int64_t count)
{
    (void)plan, (void)count;
    return !graft_is_normalized(h);
}

/* Returns the constants with which this step computes the direction of the graft. `clip` is 1; later phases set it. */
static pd_graft graft_of(const pd_unit *unit)
{
    const double *h = unit->hyper;
    bool sums = h[GRAFT_TYPE] == GRAFT_ADAGRAD || h[GRAFT_TYPE] == GRAFT_ADAGRAD_NORMALIZED || h[BETA2] == 1;
    pd_graft graft = { .kind = h[GRAFT_TYPE] == GRAFT_SGD      ? PD_GRAFT_PLAIN
                               : h[GRAFT_TYPE] == GRAFT_SQRT_N ? PD_GRAFT_SIGN
                                                               : PD_GRAFT_DIAGONAL,
                       .w1 = sums ? 1.0f : (float)h[BETA2],
                       .w2 = sums ? 1.0f : (float)(1 - h[BETA2]),
                       .epsilon = (float)h[DIAGONAL_EPSILON],
                       .divisor = 1,
                       .clip = 1 };

    if (graft_is_normalized(h)) graft.divisor = pd_norm(unit->total[PHASE_NORM][0]) + TINY;
    return graft;
}

static float clip_of(const pd_unit *unit)
{
    float rms = pd_norm(unit->total[PHASE_GRAFT][0]) / sqrtf((float)unit->plan->elements);
    float excess = rms / (float)unit->hyper[CLIP];

    /* `excess` is the root mean square divided by its limit. If it is NaN, the comparison is false, so the result is
     * NaN and not 1. */
    return excess < 1 ? 1 : excess;
}

static float *diagonal_of(const pd_unit *unit)
{
    layout slots = layout_of(unit->plan, unit->hyper);
    return slots.diagonal_statistics < 0 ? NULL : unit->slot[slots.diagonal_statistics] + unit->first;
}

static void graft(const pd_unit *unit)
{
    pd_graft f = graft_of(unit);
    float *V = diagonal_of(unit);

    pd_graft_accumulate(V, unit->gradient + unit->first, unit->n, &f);
    unit->partial[0] = pd_graft_squares(unit->gradient + unit->first, V, unit->n, &f);
}

/* Returns whether the step skips the phase that sums the squares of the graft's direction. A graft without diagonal
 * statistics does not need the phase: block_direction has summed these squares already. */
static bool no_graft(const pd_plan *plan, const double *h, int64_t count)
{
    (void)count;
    return plan->n_blocks > 0 && !graft_has_diagonal(h);
}

static void clipped_norm(const pd_unit *unit)
{
    pd_graft f = graft_of(unit);

    f.clip = clip_of(unit);
    unit->partial[0] = pd_graft_squares(unit->gradient + unit->first, diagonal_of(unit), unit->n, &f);
}

static bool no_clip(const pd_plan *plan, const double *h, int64_t count)
{
    (void)plan, (void)count;
    return !graft_is_clipped(h);
}

static double graft_squares(const pd_unit *unit)
{
    if (graft_is_clipped(unit->hyper)) return unit->total[PHASE_CLIP][0];
    return no_graft(unit->plan, unit->hyper, unit->count) ? unit->total[PHASE_PRECONDITION][OF_GRAFT]
                                                          : unit->total[PHASE_GRAFT][0];
}

/* The arguments of the last pass of a step over n elements. The pass reads gradient and direction, updates both momenta
 * and then the weights. */
typedef struct update {
    pd_graft graft;
    /* Whether the parameter has a preconditioned direction. false: the direction of the graft is used, and `direction`
     * is NULL. */
    bool own_direction;
    bool nesterov, decays;
    int64_t n;
    float *after; /* receives the new weights; may be the memory of the old ones (`before`) or of `direction` */
    const float *before, *gradient;
    const float *diagonal; /* The diagonal statistics of the graft, already updated in this step. NULL: it has none. */
    const float *direction;
    /* Two momenta: `momentum` is that of the preconditioned direction, diagonal_momentum that of the direction of the
     * graft. With PD_GRAFT_SIGN there is one momentum, `momentum`, for the direction that the step uses, and
     * diagonal_momentum is NULL. */
    float *momentum, *diagonal_momentum;
    float length; /* factor that gives the preconditioned direction the length of the step that the graft would take */
    float beta1, gain, weight_decay;
    float run;  /* 1: the step uses the preconditioned direction; 0: it uses that of the graft */
    float rate; /* minus the learning rate */
} update;

/* Updates momenta and weights in one pass over memory. Callers pass `kind`, `own`, `nesterov` and `decays` as
 * constants, so the compiled loop has no branches. */
PD_INLINE void pass(const update *m, pd_graft_kind kind, bool own, bool nesterov, bool decays)
{
    const pd_graft f = m->graft;
    const float length = m->length, beta1 = m->beta1, gain = m->gain, decay = m->weight_decay, run = m->run,
                stay = 1.0f - m->run, rate = m->rate;
    const float *before = m->before, *gradient = m->gradient, *diagonal = m->diagonal, *direction = m->direction;
    float *after = m->after, *momentum = m->momentum, *other = m->diagonal_momentum;

/* The new weights `after` are the same memory as `before` or `direction`, or overlap neither of them, so the compiler
 * may vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < m->n; i++) {
        float w = before[i];
        float d = pd_graft_direction(kind, &f, gradient[i], kind == PD_GRAFT_DIAGONAL ? diagonal[i] : 0);
        float u = (own ? direction[i] : d) * length;
        float mu, md, chosen, step;
        if (decays) {
            u = u + decay * w;
            d = d + decay * w;
        }
        mu = momentum[i] * beta1 + gain * u;
        md = (kind == PD_GRAFT_SIGN ? momentum[i] : other[i]) * beta1 + gain * d;
        chosen = run * mu + stay * md;
        if (kind != PD_GRAFT_SIGN) other[i] = md;
        momentum[i] = kind == PD_GRAFT_SIGN ? chosen : mu;
        step = nesterov ? gain * (run * u + stay * d) + beta1 * chosen : chosen;
        after[i] = w + rate * step;
    }
}

#define PASS(name, kind, own, nesterov, decays)                                                                        \
    PD_CLONES(void, name, (const update *m), (m))                                                                      \
    {                                                                                                                  \
        pass(m, kind, own, nesterov, decays);                                                                          \
    }
#define PASSES(name, kind, own)                                                                                        \
    PASS(name##_plain, kind, own, false, false)                                                                        \
    PASS(name##_decay, kind, own, false, true)                                                                         \
    PASS(name##_ahead, kind, own, true, false)                                                                         \
    PASS(name##_ahead_decay, kind, own, true, true)
#define PASSES_OF(name)                                                                                                \
    {                                                                                                                  \
        { name##_plain, name##_decay },                                                                                \
        {                                                                                                              \
            name##_ahead, name##_ahead_decay                                                                           \
        }                                                                                                              \
    }

PASSES(graft_plain, PD_GRAFT_PLAIN, false)
PASSES(own_plain, PD_GRAFT_PLAIN, true)
PASSES(graft_sign, PD_GRAFT_SIGN, false)
PASSES(own_sign, PD_GRAFT_SIGN, true)
PASSES(graft_diagonal, PD_GRAFT_DIAGONAL, false)
PASSES(own_diagonal, PD_GRAFT_DIAGONAL, true)

static void update_elements(const update *m)
{
    static void (*const passes[3][2][2][2])(const update *m) = {
        [PD_GRAFT_PLAIN] = { PASSES_OF(graft_plain), PASSES_OF(own_plain) },
        [PD_GRAFT_SIGN] = { PASSES_OF(graft_sign), PASSES_OF(own_sign) },
        [PD_GRAFT_DIAGONAL] = { PASSES_OF(graft_diagonal), PASSES_OF(own_diagonal) },
    };

    passes[m->graft.kind][m->own_direction][m->nesterov][m->decays](m);
}

static void update_weights(const pd_unit *unit)
{
    const double *h = unit->hyper;
    layout slots = layout_of(unit->plan, h);
    bool own = unit->plan->n_blocks > 0;
    double squares = graft_squares(unit);
    update m = {
        .graft = graft_of(unit),
        .own_direction = own,
        .n = unit->n,
        .nesterov = h[NESTEROV] != 0,
        .decays = h[WEIGHT_DECAY] != 0,
        .after = unit->after + unit->first,
        .before = unit->before + unit->first,
        .gradient = unit->gradient + unit->first,
        .diagonal = diagonal_of(unit),
        .direction = own ? unit->slot[slots.direction] + unit->first : NULL,
        .momentum = unit->slot[slots.momentum] + unit->first,
        .diagonal_momentum = slots.diagonal_momentum < 0 ? NULL : unit->slot[slots.diagonal_momentum] + unit->first,
        .length = pd_norm(squares) / (pd_norm(own ? unit->total[PHASE_PRECONDITION][OF_DIRECTION] : squares) + TINY),
        .beta1 = (float)h[BETA1],
        .gain = h[MOVING_AVERAGE] != 0 ? (float)(1 - h[BETA1]) : 1.0f,
        .weight_decay = (float)h[WEIGHT_DECAY],
        .run = (double)(unit->count - 1) >= h[START_STEP] ? 1.0f : 0.0f,
        .rate = -(float)h[LEARNING_RATE],
    };

    if (graft_is_clipped(h)) m.graft.clip = clip_of(unit);
    update_elements(&m);
}

const pd_optimizer_ops pd_scalable_shampoo = {
    .name   = "scalable_shampoo",
    .about  = "Google's Distributed Shampoo (optax, scalable_shampoo)",
    .hypers = hyper_table,
    .stats  = model_stats,
    .check  = check_hypers,
    .prepass = prepass,
    .plan   = plan_parameter,
    .gradient_most = PD_PRODUCT_MOST,
    .phases = {
        [PHASE_STATISTICS]   = { .name = "statistics", .kind = PD_BLOCKS, .run = block_statistics,
                                 .skip = no_statistics_for_roots },
        [PHASE_NORM]         = { .name = "gradient norm", .kind = PD_RANGES, .run = gradient_norm,
                                 .fold = { PD_FOLD_SUM }, .skip = no_gradient_norm },
        [PHASE_PRECONDITION] = { .name = "precondition", .kind = PD_BLOCKS, .run = block_direction,
                                 .fold = { PD_FOLD_SUM, PD_FOLD_SUM }, .skip = no_blocks },
        [PHASE_GRAFT]        = { .name = "graft", .kind = PD_RANGES, .run = graft,
                                 .fold = { PD_FOLD_SUM }, .skip = no_graft },
        [PHASE_CLIP]         = { .name = "clip", .kind = PD_RANGES, .run = clipped_norm,
                                 .fold = { PD_FOLD_SUM }, .skip = no_clip },
        [PHASE_UPDATE]       = { .name = "update", .kind = PD_RANGES, .run = update_weights },
    },
    .capture_phase = PHASE_PRECONDITION, .adopt_phase = PHASE_PRECONDITION,
    .due    = roots_are_due,
    .task   = compute_root,
    .note   = record_error,
};
