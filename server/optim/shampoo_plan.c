/* shampoo_plan.c - plans the state tensors, blocks and preconditioner tasks of a parameter of the
 * optimizer shampoo. */
#include <math.h>

#include "assignment.h"
#include "block_products.h"
#include "root.h"
#include "shampoo_plan.h"
#include "shapes.h"

/* ---- properties that follow from the hyperparameters ---- */

bool pd_shampoo_factors_are_wide(const double *h)
{
    return h[PRECONDITIONER_DTYPE] == OLD_FLOAT64 || h[FACTOR_DTYPE] == STORE_FLOAT64;
}

bool pd_shampoo_graft_has_moment(const double *h)
{
    return h[GRAFTING] != GRAFT_NONE && h[GRAFTING] != GRAFT_SGD;
}

int64_t pd_shampoo_start(const double *h)
{
    return (int64_t)(h[START_STEP] < 0 ? h[FREQUENCY] : h[START_STEP]);
}

int pd_shampoo_root_order(const pd_plan *plan, const double *h)
{
    double override = h[ROOT_OVERRIDE + plan->shape.rank];

    return override > 0 ? (int) override : 2 * plan->shape.rank;
}

static pd_storage storage_of(double dtype)
{
    static const pd_storage storages[] = { [STORE_FLOAT32] = PD_STORE_F32,
                                           [STORE_BFLOAT16] = PD_STORE_BF16,
                                           [STORE_FLOAT16] = PD_STORE_F16,
                                           [STORE_FLOAT64] = PD_STORE_F64 };
    return storages[(int)dtype];
}

/* ---- slots ---- */

shampoo_layout pd_shampoo_layout(const double *h)
{
    shampoo_layout slots = { .each = h[ROOT_METHOD] == ROOT_TRACKED ? 3 : 2 };
    int n = 0;

    slots.filtered_grad = h[BETA1] != 0 ? n++ : -1;
    slots.momentum = h[MOMENTUM] != 0 ? n++ : -1;
    slots.second_moment = pd_shampoo_graft_has_moment(h) ? n++ : -1;
    slots.factors = n;
    return slots;
}

int pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which)
{
    return slots->factors + (int)factor * slots->each + which;
}

static int plan_whole(pd_plan *plan, const pd_shape *shape, const double *h)
{
    shampoo_layout slots = pd_shampoo_layout(h);
    pd_slot_spec filtered = {
        .name = "filtered_grad", .number = -1, .shape = *shape, .storage = storage_of(h[FILTERED_DTYPE])
    };
    pd_slot_spec momentum = {
        .name = "momentum", .number = -1, .shape = *shape, .storage = storage_of(h[MOMENTUM_DTYPE])
    };
    pd_slot_spec moment = {
        .name = "grafting_second_moment", .number = -1, .shape = *shape, .storage = storage_of(h[GRAFTING_DTYPE])
    };

    if (slots.filtered_grad >= 0 && pd_plan_slot(plan, &filtered) < 0) return PD_NO_MEMORY;
    if (slots.momentum >= 0 && pd_plan_slot(plan, &momentum) < 0) return PD_NO_MEMORY;
    if (slots.second_moment >= 0 && pd_plan_slot(plan, &moment) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

static pd_root_method method_of(const double *h)
{
    return h[ROOT_METHOD] == ROOT_NEWTON         ? PD_ROOT_COUPLED
           : h[ROOT_METHOD] == ROOT_HIGHER_ORDER ? PD_ROOT_HIGHER_ORDER
           : h[ROOT_METHOD] == ROOT_TRACKED      ? PD_ROOT_TRACKED
           : pd_shampoo_factors_are_wide(h)      ? PD_ROOT_EIGH64
                                                 : PD_ROOT_EIGH;
}

static bool is_retried(const double *h)
{
    return h[ROOT_RETRIES] > 0 || (h[PROTECTED_EIGH] != 0 && h[ROOT_METHOD] == ROOT_EIGEN);
}

static int plan_factor(pd_plan *plan, const pd_shape *declared, const shampoo_layout *slots, int64_t k, const double *h)
{
    int64_t side = pd_statistics_side(plan, k);
    int8_t from = (int8_t)pd_shape_merged_from(declared, &plan->shape, (int)(k % plan->shape.rank));
    pd_slot_spec matrix = { .number = (int)(k % plan->shape.rank),
                            .shape = { .rank = 2, .dim = { side, side } },
                            .block = (int)(k / plan->shape.rank),
                            .of_block = true,
                            .follows_known = from >= 0,
                            .follows = { from, from } };
    pd_slot_spec factor = matrix, inverse = matrix, basis = matrix;
    pd_task_spec task = { .block = (int)k, .n_inputs = slots->each - 1, .n_outputs = slots->each - 1 };

    factor.name = "factor_matrices";
    factor.symmetric = true;
    factor.storage = pd_shampoo_factors_are_wide(h) ? PD_STORE_F64 : storage_of(h[FACTOR_DTYPE]);
    inverse.name = "inv_factor_matrices";
    inverse.storage = storage_of(h[INVERSE_DTYPE]);
    basis.name = "eigenbasis";
    task.input[0] = pd_shampoo_slot(slots, k, FACTOR);
    task.output[0] = pd_shampoo_slot(slots, k, INVERSE);
    task.input[1] = task.output[1] = pd_shampoo_slot(slots, k, BASIS);
    task.exponent = pd_shampoo_root_order(plan, h);
    task.cost = pd_root_flops(method_of(h), side, pd_shampoo_root_order(plan, h));
    task.scratch = pd_root_scratch(method_of(h), is_retried(h), side, pd_shampoo_root_order(plan, h));
    if (pd_plan_slot(plan, &factor) < 0 || pd_plan_slot(plan, &inverse) < 0) return PD_NO_MEMORY;
    if (slots->each > 2 && pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

/* ---- scratch memory of a unit ---- */

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
    shampoo_scratch parts = { .gradient = h[DECOUPLED_DECAY] == 0 ? n : pd_block_view_scratch(&plan->shape, block),
                              .filtered = h[BETA1] != 0 ? n : 0,
                              .products = pd_block_contract_scratch(&box.shape, &box.block) };

    parts.direction = parts.filtered > 0 && plan->shape.rank > 1 ? 0 : n;
    for (int d = 0; pd_shampoo_factors_are_wide(h) && d < plan->shape.rank; d++)
        parts.products = larger(parts.products, aligned(block->size[d] * block->size[d]));
    return parts;
}

/* Sets the plan's scratch memory to the most that any block needs, and adds up the floating-point operations of a step.
 * All blocks are checked, since the largest one may need less than a smaller one: a large block may be used where it
 * lies in the tensor, while a smaller one is copied. */
static void plan_work(pd_plan *plan, const double *h)
{
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const pd_block *block = &plan->blocks[b];
        shampoo_scratch parts = pd_shampoo_scratch(plan, block, h);
        int64_t floats = parts.gradient + parts.filtered + parts.direction + parts.products;
        plan->scratch_floats = (size_t)larger((int64_t)plan->scratch_floats, floats);
        plan->large_products = plan->large_products || pd_block_is_large(block, plan->shape.rank);
        /* Operations for each element of the block and each dimension d: as many as the block has indices in d for the
         * factor, and twice as many for the direction (a whole product). */
        for (int d = 0; d < plan->shape.rank; d++)
            plan->flops += 3.0 * (double)pd_block_elements(block, plan->shape.rank) * (double)block->size[d];
    }
}

/* ---- plan ---- */

/* Returns the shape that is cut into blocks: the parameter's shape, with small dimensions merged if use_merge_dims is
 * on. A scalar becomes a vector of one element. */
static pd_shape cut_shape(const pd_shape *shape, const double *h)
{
    pd_shape merged = h[MERGE_DIMS] != 0 ? pd_shape_merged(shape, (int64_t)h[MAX_DIM]) : *shape;

    return merged.rank > 0 ? merged : (pd_shape){ .rank = 1, .dim = { 1 } };
}

int pd_shampoo_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    shampoo_layout slots = pd_shampoo_layout(h);
    int rc, ranks;

    (void)fact;
    if (declaration->world > 0 && (rc = pd_group_size(&ranks, (int64_t)h[TRAINERS], declaration->world, err)) != PD_OK)
        return rc;
    plan->root_delay = h[ROOT_DELAY] < 0 ? PD_ROOT_READY : (int)fmin(h[ROOT_DELAY], 1 << 30);
    if (declaration->shape.rank == 0 && h[MERGE_DIMS] == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shampoo needs at least one dimension while use_merge_dims is off: declare the parameter with "
                       "shape 1, or set use_merge_dims");
    if (plan->elements == 0) return PD_OK;
    plan->shape = cut_shape(&declaration->shape, h);
    if ((rc = pd_shape_check_blocks(&plan->shape, (int64_t)h[MAX_DIM], "max_preconditioner_dim", err)) != PD_OK)
        return rc;
    if ((rc = pd_plan_blocks(plan, (int64_t)h[MAX_DIM])) != PD_OK) return rc;
    if ((rc = plan_whole(plan, &declaration->shape, h)) != PD_OK) return rc;
    for (int64_t k = 0; k < pd_statistics_count(plan); k++)
        if ((rc = plan_factor(plan, &declaration->shape, &slots, k, h)) != PD_OK) return rc;
    plan_work(plan, h);
    return PD_OK;
}
