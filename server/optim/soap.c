/* soap - Adam in the eigenbases of Shampoo's factors (arXiv:2409.11321), as the authors' program computes it
 * (nikhilvyas/SOAP). G is a block of the gradient, W are the weights, Q_d the basis of dimension d, and k the number of
 * the step without the first one:
 *
 *     H   =  G rotated into the bases
 *     M   <- beta1 M + (1 - beta1) H
 *     V   <- beta2 V + (1 - beta2) H H
 *     N   =  M / (sqrt(V) + eps) rotated out of the bases;  normalize_grads: N over its root mean square
 *     W   <- W - lr sqrt(1 - beta2^k) / (1 - beta1^k) N                  correct_bias = no: W - lr N
 *     W   <- W - lr weight_decay W
 *     L_d <- shampoo_beta L_d + (1 - shampoo_beta) (G contracted with itself over all dimensions but d)
 *
 * Every precondition_frequency steps a task refreshes the bases (eigenbasis.h). With root_delay = 1 the next step
 * adopts them before it uses them, which is upstream's order. Adoption turns M into the new basis and puts V into the
 * new order of the basis vectors.
 *
 * With orthogonalize, N of a matrix is orthogonalized as muon does it (polar.h), and keeps its norm.
 *
 * Dimensions above max_precond_dim have no factor, nor do vectors without precondition_1d. A parameter without any
 * factor is trained by Adam. Upstream has no blocks: block_size is ours. */
#include "rotated.h"

#include <math.h>
#include <string.h>

#include "hyperball.h"

enum { MAX_DIM = PD_ROTATED_HYPERS, MERGE_DIMS, VECTORS, DATA_FORMAT, CORRECT_BIAS, HYPERBALL, ORTHOGONAL };

static const pd_hyper soap_hypers[] = {
    PD_ROTATED_TABLE(3e-3, 0.95, 0.95),
    [MAX_DIM] = { "max_precond_dim", PD_INT, 10000, 1, 1 << 30, NULL,
                  "largest dimension of a block that has a factor; largest size of merged dimensions", false },
    [MERGE_DIMS] = { "merge_dims", PD_FLAG, 0, 0, 1, NULL, "merge small dimensions up to max_precond_dim", false },
    [VECTORS] = { "precondition_1d", PD_FLAG, 0, 0, 1, NULL, "vectors have a factor", false },
    [DATA_FORMAT] = { "data_format", PD_CHOICE, 0, 0, 0, "channels_first",
                      "order of a kernel's dimensions for merge_dims; only channels_first", false },
    [CORRECT_BIAS] = { "correct_bias", PD_FLAG, 1, 0, 1, NULL, "correct the bias of the averages", true },
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    PD_ORTHOGONAL_TABLE(ORTHOGONAL),
    { .name = NULL },
};

static int soap_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    (void)declared;
    return pd_rotated_check("soap", now->value, err);
}

static const char *soap_warning(const pd_hypers *declared)
{
    if (declared->value[ROOT_DELAY] > 1)
        return "soap learns less with late bases: prefer root_delay=1 and small blocks (block_size) to a long delay";
    return NULL;
}

static int soap_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    const pd_shape *shape = &declaration->shape;
    pd_rotated_want want = { .shape = *shape, .squares = true, .rotates = true, .sorts = true };
    int rc;

    (void)stats;
    if (h[MERGE_DIMS] != 0) want.shape = pd_shape_merged(shape, (int64_t)h[MAX_DIM]);
    if (shape->rank == 0) want.shape = (pd_shape){ .rank = 1, .dim = { 1 } };
    if (shape->rank > 1 || (shape->rank == 1 && h[VECTORS] != 0)) want.most_side = (int64_t)h[MAX_DIM];
    if ((rc = pd_rotated_plan(plan, declaration, &want, err)) != PD_OK) return rc;
    /* For each element and factor of side n: n operations for the factor (half a product), 4 n for two rotations. */
    for (size_t b = 0; b < plan->n_blocks; b++)
        for (int d = 0; d < plan->shape.rank; d++)
            if (((const pd_rotated *)plan->own)->place[d] >= 0)
                plan->flops += 5.0 * (double)pd_block_elements(&plan->blocks[b], plan->shape.rank) *
                               (double)plan->blocks[b].size[d];
    pd_rotated_plan_orthogonal(plan, h, ORTHOGONAL);
    return pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY });
}

static void soap_rotate(const pd_unit *unit)
{
    const pd_plan *plan = unit->plan;
    const pd_rotated *own = plan->own;
    int rank = plan->shape.rank;
    int64_t n = pd_block_elements(unit->block, rank);
    pd_block_view view = pd_block_look(unit->gradient, &plan->shape, unit->block, unit->scratch), rotated = view;
    float *H = unit->scratch + pd_block_view_scratch(&plan->shape, unit->block), *N = H + (n + 15) / 16 * 16,
          *room = N + (n + 15) / 16 * 16, *Q[PD_MAX_RANK];

    if (unit->count > 1) {
        pd_rotated_find(plan, unit->index, PD_BASIS, unit->slot, Q);
        pd_block_rotate(H, &view, Q, PD_AS_IS, room);
        pd_rotated_adam(unit, H, n);
        rotated.at = H;
        if (rank == 2) rotated.stride = view.size[1];
        pd_block_rotate(N, &rotated, Q, PD_TRANSPOSED, room);
        pd_rotated_direct(unit, N);
    }
    for (int d = 0; d < rank; d++)
        if (own->place[d] >= 0) pd_rotated_accumulate(unit, &view, d, 1);
}

static void soap_update(const pd_unit *unit)
{
    const double *h = unit->hyper;
    double k = (double)(unit->count - 1), rate = h[LR];

    if (h[CORRECT_BIAS] != 0) rate *= sqrt(1 - pow(h[BETA2], k)) / (1 - pow(h[BETA1], k));
    pd_rotated_update(unit, rate, unit->count > 1);
}

const pd_optimizer_ops pd_soap = {
    .name = "soap",
    .about = "SOAP: Adam in the eigenbases of Shampoo's factors",
    .hypers = soap_hypers,
    .check = soap_check,
    .warning = soap_warning,
    .plan = soap_plan,
    .phases = { { .name = "rotate", .kind = PD_BLOCKS, .run = soap_rotate, .fold = { PD_FOLD_SUM } },
                { .name = "orthogonalize",
                  .kind = PD_WHOLE,
                  .run = pd_rotated_orthogonalize,
                  .skip = pd_rotated_leaves_direction },
                { .name = "update", .kind = PD_RANGES, .run = soap_update } },
    .capture_phase = 3,
    .adopt_phase = 0,
    .own_bytes = sizeof(pd_rotated),
    .due = pd_rotated_due,
    .task = pd_rotated_task,
    .adopt = pd_rotated_adopt,
    .gradient_most = PD_PRODUCT_MOST,
    .grain = pd_rotated_grain,
};
