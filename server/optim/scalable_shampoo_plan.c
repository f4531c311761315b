/* scalable_shampoo_plan.c - plans the state tensors, blocks and preconditioner tasks of a
 * parameter of scalable_shampoo. */
#include <math.h>

#include "block_products.h"
#include "root.h"
#include "scalable_shampoo_plan.h"
#include "shapes.h"

/* ---- properties that follow from the hyperparameters ---- */

bool pd_scalable_quantizes_statistics(const double *h)
{
    return h[MEMORY_REDUCTION] != 0 && h[REDUCTION_SCOPE] == SCOPE_ALL && h[SHARDED] == 0;
}

bool pd_scalable_graft_has_diagonal(const double *h)
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

int pd_scalable_root_order(const pd_plan *plan, const double *h)
{
    return h[EXPONENT_OVERRIDE] > 0 ? (int)h[EXPONENT_OVERRIDE] : 2 * plan->shape.rank;
}

/* ---- survey: the largest block of a parameter ---- */

void pd_scalable_survey(const pd_declaration *declaration, double *fact)
{
    const double *h = declaration->hypers.value;
    int64_t elements = 0;
    pd_shape merged;

    fact[0] = 0;
    if (pd_shape_elements(&declaration->shape, &elements) != PD_OK || elements == 0 ||
        !is_preconditioned(&declaration->shape, h))
        return;
    merged = merged_shape(&declaration->shape, h);
    fact[0] = (double)pd_shape_largest_side(&merged, (int64_t)h[BLOCK_SIZE]);
}

/* ---- plan ---- */

scalable_layout pd_scalable_layout(const pd_plan *plan, const double *h)
{
    scalable_layout slots = {
        .direction = -1, .errors = -1, .statistics = -1, .each = h[ROOT_METHOD] == PD_ROOT_TRACKED ? 3 : 2
    };
    int n = 0;

    slots.momentum = n++;
    slots.diagonal_momentum = h[GRAFT_TYPE] == GRAFT_SQRT_N ? -1 : n++;
    slots.diagonal_statistics = pd_scalable_graft_has_diagonal(h) ? n++ : -1;
    if (plan->n_blocks == 0) return slots;
    slots.direction = n++;
    slots.errors = n++;
    slots.statistics = n;
    return slots;
}

int pd_scalable_slot(const scalable_layout *slots, int64_t statistic, int which)
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
    if (pd_scalable_graft_has_diagonal(h) && pd_plan_slot(plan, &statistics) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

static int plan_statistic(pd_plan *plan, const pd_shape *declared, const scalable_layout *slots, int64_t k,
                          const double *h)
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

    if (pd_scalable_quantizes_statistics(h)) {
        statistic.storage = preconditioner.storage = PD_STORE_INT16;
        statistic.diagonal_apart = preconditioner.diagonal_apart = true;
        statistic.blockwise = preconditioner.blockwise = true;
    }
    statistic.name = "statistics";
    statistic.fill = (float)h[MATRIX_EPSILON];
    /* In int16 each column is rounded by its own scale, so the stored matrix is not exactly symmetric. */
    statistic.symmetric = !pd_scalable_quantizes_statistics(h);
    preconditioner.name = "preconditioners";
    preconditioner.fill = 1;
    basis.name = "eigenbasis";
    task.input[0] = pd_scalable_slot(slots, k, STATISTIC);
    task.output[0] = pd_scalable_slot(slots, k, PRECONDITIONER);
    task.input[1] = task.output[1] = pd_scalable_slot(slots, k, BASIS);
    task.exponent = pd_scalable_root_order(plan, h);
    task.cost = pd_root_flops((pd_root_method)h[ROOT_METHOD], side, pd_scalable_root_order(plan, h));
    task.scratch =
        pd_root_scratch((pd_root_method)h[ROOT_METHOD], h[ROOT_RETRIES] > 0, side, pd_scalable_root_order(plan, h));
    if (pd_plan_slot(plan, &statistic) < 0 || pd_plan_slot(plan, &preconditioner) < 0) return PD_NO_MEMORY;
    if (slots->each > 2 && pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how many floats of scratch memory a thread needs for a block: room for a copy of the block, and either for
 * the contraction with its matrix roots or for the new term of a statistic. */
static int64_t scratch_of(const pd_plan *plan, const pd_block *block, const double *h)
{
    int64_t products = pd_block_contract_scratch(&plan->shape, block);

    for (int d = 0; pd_scalable_quantizes_statistics(h) && d < plan->shape.rank; d++)
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
    scalable_layout slots;
    int rc;

    plan->shape = merged_shape(&declaration->shape, h);
    if ((rc = pd_shape_check_blocks(&plan->shape, (int64_t)h[BLOCK_SIZE], "block_size", err)) != PD_OK) return rc;
    if ((rc = pd_plan_blocks(plan, (int64_t)h[BLOCK_SIZE])) != PD_OK) return rc;
    slots = pd_scalable_layout(plan, h);
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

int pd_scalable_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    int rc = plan_diagonals(plan, &declaration->shape, h);

    (void)fact;
    plan->root_delay = h[ROOT_DELAY] < 0                       ? PD_ROOT_READY
                       : h[ROOT_DELAY] == 0 && h[SHARDED] != 0 ? 1
                                                               : (int)fmin(h[ROOT_DELAY], 1 << 30);
    if (rc != PD_OK || plan->elements == 0 || !is_preconditioned(&declaration->shape, h)) return rc;
    return plan_blocks(plan, declaration, err);
}
