/* rotated.c - plans, refreshes and adopts the eigenbases of a parameter's blocks. */
#include "rotated.h"

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "eigenbasis.h"
#include "kernels.h"
#include "polar.h"

int pd_rotated_check(const char *optimizer, const double *h, pd_error *err)
{
    if (h[SHAMPOO_BETA] >= 1)
        return pd_fail(err, PD_INVALID_ARGUMENT, "shampoo_beta of %s: expected a number below 1, got %g", optimizer,
                       h[SHAMPOO_BETA]);
    if (h[ROOT_DELAY] == 0 || h[ROOT_DELAY] > h[FREQUENCY])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "root_delay of %s: expected 1 to precondition_frequency, %.0f, or ready, got %.0f", optimizer,
                       h[FREQUENCY], h[ROOT_DELAY]);
    return PD_OK;
}

static int slot_of(const pd_rotated *own, int64_t block, int d, int which)
{
    return own->first + ((int)block * own->n_factored + own->place[d]) * own->each + which;
}

void pd_rotated_find(const pd_plan *plan, int64_t block, int which, float *const *slot, float **at)
{
    const pd_rotated *own = plan->own;

    for (int d = 0; d < plan->shape.rank; d++) at[d] = own->place[d] < 0 ? NULL : slot[slot_of(own, block, d, which)];
}

static pd_storage storage_of(double dtype)
{
    return dtype == 0 ? PD_STORE_F32 : PD_STORE_BF16;
}

static void fill_own(pd_plan *plan, const pd_shape *declared, const double *h, const pd_rotated_want *want)
{
    pd_rotated *own = plan->own;

    *own = (pd_rotated){ .shampoo_beta = h[SHAMPOO_BETA] < 0 ? h[BETA2] : h[SHAMPOO_BETA],
                         .squares = want->squares,
                         .may_be_cut = h[NORMALIZE] == 0 && pd_shape_equal(&plan->shape, declared),
                         .rotates = want->rotates,
                         .sorts = want->sorts,
                         .has_values = want->values > 0,
                         .each = want->values > 0 ? 3 : 2 };
    for (int d = 0; d < plan->shape.rank; d++) {
        int64_t side = plan->n_blocks > 0 ? plan->blocks[0].size[d] : 0;
        own->place[d] = side > 0 && side <= want->most_side ? own->n_factored++ : -1;
    }
}

/* Adds the slots of the factor of dimension d of a block. Upstream numbers factors by dimension; here the numbers go on
 * from block to block. */
static int plan_factor(pd_plan *plan, const pd_shape *declared, const double *h, int64_t block, int d, float values)
{
    int64_t side = plan->blocks[block].size[d];
    int8_t from = (int8_t)pd_shape_merged_from(declared, &plan->shape, d);
    pd_slot_spec factor = { .name = "GG",
                            .number = (int)block * plan->shape.rank + d,
                            .shape = { .rank = 2, .dim = { side, side } },
                            .symmetric = true,
                            .storage = storage_of(h[FACTOR_DTYPE]),
                            .follows_known = from >= 0,
                            .follows = { from, from } };
    pd_slot_spec basis = factor, numbers = factor;

    basis.name = "Q";
    basis.symmetric = false;
    basis.identity = true;
    basis.fill = 1;
    basis.storage = storage_of(h[BASIS_DTYPE]);
    numbers.name = "eigen_sqrt_inv";
    numbers.symmetric = false;
    numbers.shape = (pd_shape){ .rank = 1, .dim = { side } };
    numbers.fill = values;
    numbers.storage = PD_STORE_F32;
    if (pd_plan_slot(plan, &factor) < 0 || pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return values > 0 && pd_plan_slot(plan, &numbers) < 0 ? PD_NO_MEMORY : PD_OK;
}

/* Adds a temporary slot for the new order of a factor's basis vectors, which a task computes. Returns its index. */
static int plan_order(pd_plan *plan, int64_t block, int d)
{
    return pd_plan_slot(plan, &(pd_slot_spec){ .name = "order",
                                               .number = (int)block * plan->shape.rank + d,
                                               .shape = { .rank = 1, .dim = { plan->blocks[block].size[d] } },
                                               .temporary = true });
}

static void add_factor(pd_plan *plan, pd_task_spec *task, int64_t block, int d, int order)
{
    const pd_rotated *own = plan->own;
    int64_t side = plan->blocks[block].size[d];

    task->input[task->n_inputs++] = slot_of(own, block, d, PD_FACTOR);
    task->input[task->n_inputs++] = slot_of(own, block, d, PD_BASIS);
    task->output[task->n_outputs++] = slot_of(own, block, d, PD_BASIS);
    if (own->sorts) task->output[task->n_outputs++] = order;
    task->cost += pd_eigenbasis_flops(side);
    task->scratch = task->scratch > pd_eigenbasis_scratch(side) ? task->scratch : pd_eigenbasis_scratch(side);
}

/* Adds the tasks of a block: one for each factor, or one for all of them if adoption changes the moments, which all
 * factors of a block share. */
static int plan_tasks(pd_plan *plan, int64_t block)
{
    const pd_rotated *own = plan->own;
    pd_task_spec task = { .block = (int)block };

    for (int d = 0; d < plan->shape.rank; d++) {
        int order = 0;
        if (own->place[d] < 0) continue;
        if (own->sorts && (order = plan_order(plan, block, d)) < 0) return PD_NO_MEMORY;
        add_factor(plan, &task, block, d, order);
        if (own->rotates) continue;
        if (pd_plan_task(plan, &task) < 0) return PD_NO_MEMORY;
        task = (pd_task_spec){ .block = (int)block };
    }
    return task.n_inputs > 0 && pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int plan_moments(pd_plan *plan, const pd_shape *shape, const double *h)
{
    pd_rotated *own = plan->own;
    pd_slot_spec spec = { .name = "exp_avg", .number = -1, .shape = *shape, .storage = storage_of(h[AVERAGE_DTYPE]) };

    if (pd_plan_slot(plan, &spec) < 0) return PD_NO_MEMORY;
    spec.name = "exp_avg_sq";
    if (own->squares && pd_plan_slot(plan, &spec) < 0) return PD_NO_MEMORY;
    spec = (pd_slot_spec){ .name = "direction", .number = -1, .shape = *shape, .temporary = true, .in_after = true };
    own->direction = pd_plan_slot(plan, &spec);
    own->first = own->direction + 1;
    return own->direction < 0 ? PD_NO_MEMORY : PD_OK;
}

/* Returns how many floats kl_shampoo.c needs for new eigenvalues of a block, and for sums in float64. */
static int64_t numbers_of(const pd_block *block, int rank)
{
    int64_t sum = 0, most = 0;

    for (int d = 0; d < rank; d++) {
        sum += block->size[d];
        most = block->size[d] > most ? block->size[d] : most;
    }
    return sum + 2 * most;
}

static void plan_work(pd_plan *plan)
{
    int rank = plan->shape.rank;

    for (size_t b = 0; b < plan->n_blocks; b++) {
        const pd_block *block = &plan->blocks[b];
        int64_t n = pd_block_elements(block, rank),
                floats = pd_block_view_scratch(&plan->shape, block) + 2 * ((n + 15) / 16 * 16) +
                         pd_block_rotate_scratch(block, rank) + numbers_of(block, rank);
        if ((size_t)floats > plan->scratch_floats) plan->scratch_floats = (size_t)floats;
        plan->large_products = plan->large_products || pd_block_is_large(block, rank);
    }
}

int pd_rotated_plan(pd_plan *plan, const pd_declaration *declaration, const pd_rotated_want *want, pd_error *err)
{
    const double *h = declaration->hypers.value;
    const pd_rotated *own = plan->own;
    int rc;

    plan->root_delay = h[ROOT_DELAY] < 0 ? PD_ROOT_READY : (int)fmin(h[ROOT_DELAY], 1 << 30);
    if (plan->elements == 0) return PD_OK;
    plan->shape = want->shape;
    if ((rc = pd_shape_check_blocks(&plan->shape, (int64_t)h[BLOCK_SIZE], "block_size", err)) != PD_OK) return rc;
    if ((rc = pd_plan_blocks(plan, (int64_t)h[BLOCK_SIZE])) != PD_OK) return rc;
    fill_own(plan, &declaration->shape, h, want);
    if ((rc = plan_moments(plan, &declaration->shape, h)) != PD_OK) return rc;
    for (int64_t k = 0; k < pd_statistics_count(plan); k++) {
        int d = (int)(k % plan->shape.rank);
        if (own->place[d] < 0) continue;
        rc = plan_factor(plan, &declaration->shape, h, k / plan->shape.rank, d, want->values);
        if (rc != PD_OK) return rc;
    }
    for (size_t b = 0; b < plan->n_blocks; b++)
        if ((rc = plan_tasks(plan, (int64_t)b)) != PD_OK) return rc;
    plan_work(plan);
    return PD_OK;
}

void pd_rotated_plan_orthogonal(pd_plan *plan, const double *h, int first)
{
    pd_rotated *own = plan->own;
    int64_t rows = plan->shape.dim[0], cols = plan->shape.dim[1];
    size_t scratch;

    if (h[first + PD_ORTHOGONALIZE] == 0 || plan->elements == 0 || plan->shape.rank != 2) return;
    own->orthogonalizes = true;
    own->express = h[first + PD_POLYNOMIAL] != 0;
    own->ns_steps = (int)h[first + PD_NS_STEPS];
    own->may_be_cut = false;
    scratch = (size_t)pd_polar_scratch(rows, cols);
    if (scratch > plan->scratch_floats) plan->scratch_floats = scratch;
    plan->flops += pd_polar_flops(rows, cols, own->ns_steps);
    plan->large_products = plan->large_products || pd_polar_is_large(rows, cols);
}

bool pd_rotated_leaves_direction(const pd_plan *plan, const double *h, int64_t count)
{
    (void)h;
    return !((const pd_rotated *)plan->own)->orthogonalizes || count == 1;
}

void pd_rotated_orthogonalize(const pd_unit *unit)
{
    const pd_rotated *own = unit->plan->own;
    const pd_shape *shape = &unit->plan->shape;
    const pd_polar how = { .form = PD_POLAR_TORCH,
                           .express = own->express,
                           .factors = { 3.4445f, -4.7750f, 2.0315f },
                           .eps = 1e-7f,
                           .steps = own->ns_steps };
    pd_mat N = pd_mat_dense(unit->slot[own->direction], shape->dim[0], shape->dim[1]);
    const int64_t n = N.rows * N.cols;
    const double before = sqrt(pd_sum_squares(N.at, n));
    double after;

    pd_polar_factor(N, &how, unit->scratch);
    after = sqrt(pd_sum_squares(N.at, n));
    pd_scale(N.at, N.at, after > 0 ? (float)(before / after) : 0, n);
}

void pd_rotated_accumulate(const pd_unit *unit, const pd_block_view *view, int d, double scale)
{
    const pd_rotated *own = unit->plan->own;
    int64_t side = view->size[d];
    float *factor = unit->slot[slot_of(own, unit->index, d, PD_FACTOR)];

    pd_block_gram(pd_mat_dense(factor, side, side), (float)own->shampoo_beta, (float)((1 - own->shampoo_beta) * scale),
                  view, d);
}

int64_t pd_rotated_whole(const pd_unit *unit, int64_t i, int64_t run)
{
    return pd_block_run_start(&unit->plan->shape, unit->block, i / run);
}

void pd_rotated_direct(const pd_unit *unit, const float *N)
{
    const pd_plan *plan = unit->plan;
    const pd_rotated *own = plan->own;

    if (unit->hyper[NORMALIZE] != 0)
        unit->partial[0] = pd_sum_squares(N, pd_block_elements(unit->block, plan->shape.rank));
    pd_block_scatter(unit->slot[own->direction], N, &plan->shape, unit->block);
}

PD_CLONES(void, average,
          (float *restrict H, float *restrict M, float *restrict V, int64_t n, float beta1, float gain1, float beta2,
           float gain2, float eps),
          (H, M, V, n, beta1, gain1, beta2, gain2, eps))
{
    for (int64_t i = 0; i < n; i++) {
        float h = H[i], m = beta1 * M[i] + gain1 * h, v = beta2 * V[i] + gain2 * (h * h);
        M[i] = m;
        V[i] = v;
        H[i] = m / (sqrtf(v) + eps);
    }
}

void pd_rotated_adam(const pd_unit *unit, float *H, int64_t n)
{
    const double *h = unit->hyper;
    int64_t run = pd_block_run_length(&unit->plan->shape, unit->block);

    for (int64_t i = 0; i < n; i += run) {
        int64_t at = pd_rotated_whole(unit, i, run);
        average(H + i, unit->slot[EXP_AVG] + at, unit->slot[EXP_AVG_SQ] + at, run, (float)h[BETA1],
                (float)(1 - h[BETA1]), (float)h[BETA2], (float)(1 - h[BETA2]), (float)h[EPS]);
    }
}

PD_CLONES(void, move,
          (float *after, const float *before, const float *N, int64_t n, float rate, float shrink, float by),
          (after, before, N, n, rate, shrink, by))
{
/* The new weights may be the same memory as the old ones or as the direction: each element is read before it is
 * written. */
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float w = before[i] - rate * (N[i] * by);
        after[i] = w - shrink * w;
    }
}

void pd_rotated_update(const pd_unit *unit, double rate, bool moves)
{
    const pd_rotated *own = unit->plan->own;
    const double *h = unit->hyper;
    const float *before = unit->before + unit->first, *N = unit->slot[own->direction] + unit->first;
    float *after = unit->after + unit->first, by = 1;

    if (!moves) {
        if (after != before) memcpy(after, before, (size_t)unit->n * sizeof *after);
        return;
    }
    if (h[NORMALIZE] != 0) by = (float)(1 / (1e-30 + sqrt(unit->total[0][0] / (double)unit->plan->elements)));
    move(after, before, N, unit->n, (float)rate, (float)(h[LR] * h[WEIGHT_DECAY]), by);
}

/* The first gradient makes the first bases, and the bases are refreshed after every FREQUENCY further steps. */
bool pd_rotated_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot)
{
    (void)plan, (void)slot;
    return (count - 1) % (int64_t)h[FREQUENCY] == 0;
}

/* Returns the dimension of the task's k-th factor. */
static int dimension_of(const pd_task_view *task, int k)
{
    return task->plan->slots[task->spec->input[2 * k]].number % task->plan->shape.rank;
}

int pd_rotated_task(pd_task_view *task)
{
    const pd_rotated *own = task->plan->own;
    int rc = PD_OK;

    for (int k = 0; rc == PD_OK && 2 * k < task->spec->n_inputs; k++) {
        int64_t n = task->plan->blocks[task->spec->block].size[dimension_of(task, k)];
        pd_mat L = pd_mat_dense(task->input[2 * k], n, n), old = pd_mat_dense(task->input[2 * k + 1], n, n);
        pd_mat Q = pd_mat_dense(task->output[own->sorts ? 2 * k : k], n, n);
        float *order = own->sorts ? task->output[2 * k + 1] : NULL;
        double condition = 0;
        for (int64_t j = 0; order != NULL && j < n; j++) order[j] = (float)j;
        rc = task->count == 1 ? pd_eigenbasis(Q, L, &condition) : pd_eigenbasis_refresh(Q, order, old, L, &condition);
        task->condition = fmax(task->condition, condition);
    }
    return rc;
}

/* Returns whether `order` names columns of a basis. It may come from an image or an import. */
static bool is_order(const float *order, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (!(order[j] >= 0 && order[j] < (float)n)) return false;
    return true;
}

/* Moves the moments of a block from the old basis of dimension d to the new one. exp_avg is turned. exp_avg_sq only
 * follows the order of the basis vectors. The task's inputs are work memory. */
static void move_moments(const pd_task_view *task, float *const *slot, int d, pd_mat old, pd_mat Q, const float *order,
                         float *const *room)
{
    const pd_plan *plan = task->plan;
    const pd_rotated *own = plan->own;
    const pd_block *block = &plan->blocks[task->spec->block];
    pd_mat turn = pd_mat_dense(room[1], Q.rows, Q.rows);

    pd_block_multiply(turn, old, PD_TRANSPOSED, Q, PD_AS_IS);
    pd_block_multiply_along(slot[EXP_AVG], &plan->shape, block, d, turn, room[0]);
    if (own->sorts && is_order(order, Q.rows))
        pd_block_sort_along(slot[EXP_AVG_SQ], &plan->shape, block, d, order, room[0]);
}

void pd_rotated_adopt(const pd_task_view *task, float *const *slot)
{
    const pd_rotated *own = task->plan->own;

    for (int k = 0; 2 * k < task->spec->n_inputs; k++) {
        int d = dimension_of(task, k);
        int64_t n = task->plan->blocks[task->spec->block].size[d];
        pd_mat old = pd_mat_dense(slot[task->spec->input[2 * k + 1]], n, n),
               Q = pd_mat_dense(task->output[own->sorts ? 2 * k : k], n, n);
        if (own->rotates)
            move_moments(task, slot, d, old, Q, own->sorts ? task->output[2 * k + 1] : NULL, task->input + 2 * k);
        memcpy(old.at, Q.at, (size_t)(n * n) * sizeof *Q.at);
    }
}

/* Blocks share nothing but the root mean square of normalize_grads. Merged dimensions of a portion may differ from
 * those of the parameter. */
int64_t pd_rotated_grain(const pd_plan *plan)
{
    const pd_rotated *own = plan->own;

    return plan->n_blocks > 0 && own->may_be_cut ? plan->blocks[0].size[0] : 0;
}
