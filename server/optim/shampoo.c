/* shampoo - Meta's PyTorch Distributed Shampoo (arXiv:2309.06497), the release of July 2024, with beta3 and dampening
 * from August 2024. G is the gradient, W are the weights, L_k the factor of a block's dimension k, and R_k is its
 * inverse root:
 *
 *     G   <- G + weight_decay W, unless the decay is decoupled
 *     L_k <- beta2 L_k + (1 - beta2) (block of G contracted with itself over all dimensions but k)  for each block;
 *         beta2 = 1: plain sums
 *     R_k <- (L_k / c2 + epsilon I)^(-exponent_multiplier/r)  every precondition_frequency steps, from
 *         start_preconditioning_step on
 *     F   <- beta1 F + (1 - beta1) G;   D = F / c1                    beta1 = 0: D = G
 *     P   =  D multiplied by the R_k of its block along each dimension; graft(D) before the start step
 *     P   <- P |graft(D)| / (|P| + 1e-16), from the start step on, with the norms of the block
 *     P   <- P + weight_decay W, where the decay is decoupled
 *     M   <- momentum M + (1 - dampening) P;   P <- M, or (1 - dampening) P + momentum M with Nesterov
 *     W   <- W - lr P
 *
 * semantics=2026 is Meta's release of August 2026. Its R begin as the identity, and without a graft they are used from
 * the first step on. Dimensions are merged from the last one, steps without gradients count, each dimension may have an
 * exponent of its own, and R may be a pseudo-inverse. With preconditioner_config=EigenvalueCorrectedShampoo (SOAP) a
 * task computes the eigenvectors Q_k of L_k, and V is kept in their bases:
 *
 *     V   <- beta2 V + (1 - beta2) (G rotated into the bases)^2
 *     P   =  D rotated into the bases, over (V / c2)^e + epsilon, rotated out of them
 *
 * The other classes have no factors: P is D orthogonalized, its signs, or graft(D).
 *
 * preconditioner_config=RootInvKLShampoo is Meta's KL-Shampoo (2026): the block of G that is contracted is multiplied
 * by the R of all dimensions but k before, and the R begin as the identity. It has no 1/n; `normalize` adds it.
 *
 * |X| is the norm of X. If biases are corrected, c1 = 1 - beta1^t and c2 = 1 - beta2^t, otherwise both are 1. t is the
 * number of the step, which the parameters of a step group count together. r is inv_root_override, or by default twice
 * the number of dimensions. All state begins at zero, in 2024 the roots, too.
 *
 * graft(D) is the direction of a first-order optimizer, the graft: see graft.h. It has second moments of its own in the
 * state. partition.h merges dimensions, and defines the blocks and their order.
 *
 * Defects of Meta's program ("upstream") are not copied. For example, a 0 inside the list inv_root_override means the
 * default, as a plain 0 does. Google's Shampoo is another optimizer, scalable_shampoo. */
#include "shampoo_step.h"

#include <assert.h>
#include <math.h>

#include "block_products.h"
#include "hyperball.h"
#include "partition.h"
#include "polar.h"

/* 2^53 - 1, the largest count of steps that may be configured: every whole number up to it is exact in a double */
#define LARGEST_COUNT 9007199254740991.0
#define LARGEST_INT 2147483647
#define DTYPES "float32|bfloat16|float16"

#define OVERRIDE(order, list)                                                                                          \
    [ROOT_OVERRIDE + (order)] = { "inv_root_override[" #order "]",                                                     \
                                  PD_INT,                                                                              \
                                  0,                                                                                   \
                                  -LARGEST_INT,                                                                        \
                                  1 << 20,                                                                             \
                                  NULL,                                                                                \
                                  "order r of the inverse root of blocks with " #order                                 \
                                  " dimensions; 0: twice the dimensions; one number sets it for all blocks",           \
                                  true,                                                                                \
                                  list }

static const pd_hyper shampoo_hypers[] = {
    [LR] = { "lr", PD_REAL, 0.01, 0, INFINITY, NULL, "learning rate", true },
    [BETA1] = { "betas[0]", PD_REAL, 0.9, 0, 1, NULL,
                "decay of the filtered gradient, below 1; 0: gradients are not filtered", true },
    [BETA2] = { "betas[1]", PD_REAL, 1, 0, 1, NULL, "decay of the factor matrices, above 0; exactly 1: plain sums",
                true },
    [BETA3] = { "beta3", PD_REAL, -1, -1, 1, NULL,
                "weight of the previous filtered gradient in the direction, below 1; -1: betas[0]", true },
    [EPSILON] = { "epsilon", PD_REAL, 1e-12, 0, INFINITY, NULL,
                  "added to the eigenvalues of each factor matrix, above 0", true },
    [MOMENTUM] = { "momentum", PD_REAL, 0, 0, 1, NULL, "momentum of the direction, below 1; 0: none", true },
    [DAMPENING] = { "dampening", PD_REAL, 0, 0, 1, NULL, "dampening of the direction in the momentum, below 1", true },
    [WEIGHT_DECAY] = { "weight_decay", PD_REAL, 0, 0, INFINITY, NULL,
                       "factor of the weights added to the direction, or to the gradient", true },
    [MAX_DIM] = { "max_preconditioner_dim", PD_INT, 1024, 1, LARGEST_INT, NULL,
                  "largest side of a block and of merged dimensions", false },
    [FREQUENCY] = { "precondition_frequency", PD_INT, 1, 1, LARGEST_COUNT, NULL,
                    "steps from one computation of the inverse roots to the next", true },
    [START_STEP] = { "start_preconditioning_step", PD_INT, -1, -1, LARGEST_COUNT, NULL,
                     "first step (counted from 1) with Shampoo's direction, at least precondition_frequency; -1: "
                     "precondition_frequency",
                     true },
    OVERRIDE(0, true),
    OVERRIDE(1, false),
    OVERRIDE(2, false),
    OVERRIDE(3, false),
    OVERRIDE(4, false),
    OVERRIDE(5, false),
    OVERRIDE(6, false),
    OVERRIDE(7, false),
    OVERRIDE(8, false),
    [EXPONENT_MULTIPLIER] = { "exponent_multiplier", PD_REAL, 1, -INFINITY, INFINITY, NULL,
                              "the exponent of the inverse roots is -exponent_multiplier / r", true },
    [NESTEROV] = { "use_nesterov", PD_FLAG, 0, 0, 1, NULL, "Nesterov momentum; no effect without momentum", true },
    [BIAS_CORRECTION] = { "use_bias_correction", PD_FLAG, 1, 0, 1, NULL,
                          "correct the bias of the filtered gradient and the factor matrices", true },
    [DECOUPLED_DECAY] = { "use_decoupled_weight_decay", PD_FLAG, 1, 0, 1, NULL,
                          "add weight decay to the direction (AdamW); no: to the gradient (L2 penalty)", false },
    [MERGE_DIMS] = { "use_merge_dims", PD_FLAG, 1, 0, 1, NULL, "merge small dimensions", false },
    [GRAFTING] = { "grafting_config", PD_CHOICE, GRAFT_NONE, 0, 0, "none|SGD|Adagrad|RMSprop|Adam",
                   "optimizer whose step length each block takes", false },
    [GRAFTING_BETA2] = { "grafting_config.beta2", PD_REAL, -INFINITY, -INFINITY, INFINITY, "default",
                         "decay of the second moment, above 0; default: RMSprop 0.99, Adam 0.999", true },
    [GRAFTING_EPSILON] = { "grafting_config.epsilon", PD_REAL, -INFINITY, -INFINITY, INFINITY, "default",
                           "added to the square root of the second moment, above 0; default: Adagrad 1e-10, RMSprop "
                           "and Adam 1e-8",
                           true },
    [PRECONDITIONER_DTYPE] = { "preconditioner_dtype", PD_CHOICE, OLD_NONE, 0, 0, "none|float32|float64",
                               "type of the factor matrices and of the computation of their roots (deprecated "
                               "upstream)",
                               false },
    [PRECISION] = { "precision_config", PD_CHOICE, 0, 0, 0, "none|PrecisionConfig",
                    "storage type of each quantity; excludes preconditioner_dtype", false },
    [FACTOR_DTYPE] = { "precision_config.factor_matrix_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, DTYPES "|float64",
                       "storage type of the factor matrices; float64: roots are computed in float64 as well", false },
    [INVERSE_DTYPE] = { "precision_config.inv_factor_matrix_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, DTYPES,
                        "storage type of the inverse roots", false },
    [FILTERED_DTYPE] = { "precision_config.filtered_grad_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, DTYPES,
                         "storage type of the filtered gradient", false },
    [MOMENTUM_DTYPE] = { "precision_config.momentum_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, DTYPES,
                         "storage type of the momentum", false },
    [GRAFTING_DTYPE] = { "precision_config.grafting_state_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, DTYPES,
                         "storage type of the graft's second moment", false },
    [COMPUTATION_DTYPE] = { "precision_config.computation_dtype", PD_CHOICE, STORE_FLOAT32, 0, 0, "float32",
                            "type of the arithmetic of a step", false },
    [PROTECTED_EIGH] = { "use_protected_eigh", PD_FLAG, 1, 0, 1, NULL,
                         "retry a failed root in float64, then keep the last good root; no: the step fails", true },
    [ROOT_METHOD] = { "root_inverse_method", PD_CHOICE, ROOT_EIGEN, 0, 0, "eigen|newton|higher_order|tracked|qr",
                      "method that computes roots; upstream has no tracked; qr: by eigenvectors from QR iterations",
                      false },
    [ROOT_TOLERANCE] = { "root_inverse_tolerance", PD_REAL, -1, -1, INFINITY, "default",
                         "the iteration ends when its error is at most this; default: newton, higher_order 1e-6, qr 0",
                         true },
    [ROOT_ITERATIONS] = { "root_inverse_max_iterations", PD_INT, 0, 0, LARGEST_INT, "default",
                          "largest number of iterations; default: newton, higher_order 100, qr 1", true },
    [ROOT_ITERATION_ORDER] = { "root_inverse_order", PD_INT, 2, 2, 32, NULL,
                               "higher_order: order of the iteration; 2 is Newton's", true },
    [TRAINERS] = { "num_trainers_per_group", PD_INT, -1, -1, LARGEST_INT, NULL,
                   "ranks in each of upstream's groups, -1: all; has no effect on results", false },
    [COMMUNICATION_DTYPE] = { "communication_dtype", PD_CHOICE, SEND_FLOAT32, 0, 0, "FP32|FP16|BF16|DEFAULT",
                              "type that updates are rounded to before they are added", false },
    [COMMUNICATE_PARAMS] = { "communicate_params", PD_FLAG, 0, 0, 1, NULL,
                             "round the weights to communication_dtype instead of the updates", false },
    [TRACK_RESIDUALS] = { "track_root_inv_residuals", PD_FLAG, 0, 0, 1, NULL,
                          "accepted and ignored: errors of roots can always be read", true },
    [PYTORCH_COMPILE] = { "use_pytorch_compile", PD_FLAG, 0, 0, 1, NULL,
                          "only no is accepted: there is nothing to compile", false },
    [ROOT_DELAY] = { "root_delay", PD_INT, 0, -1, LARGEST_COUNT, "ready",
                     "steps from the factors to the use of their root, at most precondition_frequency; ready: as soon "
                     "as it is done, so results depend on timing",
                     false },
    [ROOT_RETRIES] = { "root_retries", PD_INT, 0, 0, 6, NULL,
                       "number of retries of a failed root, with larger epsilons", true },
    [PRECONDITIONER] = { "preconditioner_config", PD_CHOICE, 0, 0, 0,
                         "RootInvShampoo|RootInvKLShampoo|EigendecomposedShampoo|EigendecomposedKLShampoo|"
                         "EigenvalueCorrectedShampoo|SpectralDescent|SignDescent|SGD|AdaGrad|RMSprop|Adam",
                         "how a direction is made: by roots; KL: of the whitened gradient's factors; "
                         "EigenvalueCorrected: SOAP; SGD to Adam: as grafts do",
                         false },
    [NORMALIZE] = { "preconditioner_config.normalize", PD_FLAG, 0, 0, 1, NULL,
                    "divide each factor's new term by the size of the other dimensions, as KL-Shampoo's paper does; "
                    "upstream does not",
                    false },
    [TRACE_EXPONENT] = { "preconditioner_config.trace_scaling_exponent", PD_REAL, 0, 0, 10, NULL,
                         "divide a factor by this power of its trace before its root is computed", false },
    [SEMANTICS] = { "semantics", PD_CHOICE, RELEASE_2024, 0, 0, "2024|2026",
                    "release of Meta's program: July 2024 (the default until paramd 1.0) or August 2026; their numbers "
                    "differ",
                    false },
    [EXPONENTS] = { "inverse_exponent_override", PD_TEXT, 0, 0, 0, NULL,
                    "2026: exponents of roots by number of dimensions, such as [1:0.5,2:[0:0.4,1:0]]; 0: no factor; "
                    "others 1/(2 dimensions)",
                    false },
    [IGNORED_DIMS] = { "ignored_basis_change_dims", PD_TEXT, 0, 0, 0, NULL,
                       "EigenvalueCorrected: dimensions without factor by number of dimensions, such as [1:0,2:[0,1]]",
                       false },
    [DROP_WEIGHT] = { "drop_weighting_factor_on_gsquare", PD_FLAG, 0, 0, 1, NULL,
                      "2026: new terms of factors have the weight 1, not 1 - betas[1], and no bias is corrected",
                      false },
    [DECAY_TYPE] = { "weight_decay_type", PD_CHOICE, DECAY_DEFAULT, 0, 0, "default|L2|DECOUPLED|CORRECTED|INDEPENDENT",
                     "2026: CORRECTED: times lr / peak_lr, INDEPENDENT: over peak_lr; default: by "
                     "use_decoupled_weight_decay",
                     false },
    [PEAK_LR] = { "peak_lr", PD_REAL, 0, 0, INFINITY, "default",
                  "rate of which CORRECTED and INDEPENDENT decay is a share; default: the rule's lr", false },
    [DEFICIENT] = { "rank_deficient_stability_config", PD_CHOICE, PERTURB_BEFORE, 0, 0,
                    "Perturbation|PerturbationAfter|PseudoInverse",
                    "2026: epsilon is added before or after the decomposition, with the same result up to rounding; or "
                    "a pseudo-inverse",
                    false },
    [RANK_ATOL] = { "rank_deficient_stability_config.rank_atol", PD_REAL, 0, 0, INFINITY, NULL,
                    "PseudoInverse: eigenvalues up to this number count as 0", false },
    [RANK_RTOL] = { "rank_deficient_stability_config.rank_rtol", PD_REAL, 0, -1, 1, "default",
                    "PseudoInverse: or up to this share of the largest one; default: 2^-23 times the side", false },
    [TARGET_DIMS] = { "target_parameter_dimensionality", PD_INT, 1, 0, LARGEST_INT, "inf",
                      "2026: dimensions are merged, from the last one on, until so many are left; inf: none are merged",
                      false },
    [TRAIN_COEFF] = { "iterate_averaging_config.train_interp_coeff", PD_REAL, 0, 0, 1, "none",
                      "2026: share of the averaged weights, which are evaluated, in those at which gradients are taken "
                      "(GeneralizedPrimalAveraging, ScheduleFree: 0.8 upstream); none: no averages",
                      false },
    [EVAL_COEFF] = { "iterate_averaging_config.eval_interp_coeff", PD_REAL, 0.9, -1, 1, "schedule_free",
                     "decay of the averaged weights; schedule_free: the average over all steps, by the squares of "
                     "their "
                     "rates",
                     false },
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    { .name = NULL },
};

static pd_storage storage_of(double dtype)
{
    static const pd_storage storages[] = { [STORE_FLOAT32] = PD_STORE_F32,
                                           [STORE_BFLOAT16] = PD_STORE_BF16,
                                           [STORE_FLOAT16] = PD_STORE_F16,
                                           [STORE_FLOAT64] = PD_STORE_F64 };
    return storages[(int)dtype];
}

#define VECTORS_NAME "factor_matrices_eigenvectors"

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
    pd_slot_spec corrected = { .name = "corrected_eigenvalues", .number = -1, .shape = *shape };

    pd_slot_spec apart = { .name = "z_minus_y", .number = -1, .shape = *shape };

    if (slots.filtered_grad >= 0 && pd_plan_slot(plan, &filtered) < 0) return PD_NO_MEMORY;
    if (slots.momentum >= 0 && pd_plan_slot(plan, &momentum) < 0) return PD_NO_MEMORY;
    if (slots.second_moment >= 0 && pd_plan_slot(plan, &moment) < 0) return PD_NO_MEMORY;
    if (slots.corrected >= 0 && pd_plan_slot(plan, &corrected) < 0) return PD_NO_MEMORY;
    if (slots.apart >= 0 && pd_plan_slot(plan, &apart) < 0) return PD_NO_MEMORY;
    return PD_OK;
}

/* Adds the two numbers of an average over all steps, in float64: the weight of a step may be a millionth of their sum.
 * k begins with the number of steps before the job's first one, or a little more where float32 lacks it. */
static int plan_sum(pd_plan *plan, int64_t start, const double *h)
{
    shampoo_layout slots = pd_shampoo_layout(h);
    float k = (float)start;
    int rc;

    if (slots.sum < 0) return PD_OK;
    if ((double)k < (double)start) k = nextafterf(k, INFINITY);
    rc = pd_plan_number(plan, "weight_sum", 0);
    if (rc == PD_OK) rc = pd_plan_number(plan, "k", k);
    for (size_t i = (size_t)slots.sum; rc == PD_OK && i < plan->n_slots; i++) plan->slots[i].storage = PD_STORE_F64;
    return rc;
}

/* Adds the slots and the task of the factor of dimension d of a block. */
static int plan_factor(pd_plan *plan, const pd_shape *declared, const shampoo_layout *slots, int64_t block, int d,
                       const double *h)
{
    const shampoo_own *own = plan->own;
    int64_t side = plan->blocks[block].size[d];
    int8_t from = (int8_t)pd_shape_merged_from(declared, &plan->shape, d);
    pd_slot_spec matrix = { .number = own->place[d],
                            .shape = { .rank = 2, .dim = { side, side } },
                            .block = (int)block,
                            .of_block = true,
                            .follows_known = from >= 0,
                            .follows = { from, from } };
    pd_slot_spec factor = matrix, inverse = matrix, basis = matrix;
    pd_task_spec task = pd_shampoo_task_spec(plan, slots, block, d, h);

    factor.name = "factor_matrices";
    factor.symmetric = true;
    factor.storage = pd_shampoo_factors_are_wide(h) ? PD_STORE_F64 : storage_of(h[FACTOR_DTYPE]);
    inverse.name = pd_shampoo_is_corrected(h) ? VECTORS_NAME : "inv_factor_matrices";
    inverse.identity = pd_shampoo_begins_with_identity(h);
    inverse.fill = inverse.identity ? 1 : 0;
    inverse.storage = storage_of(h[INVERSE_DTYPE]);
    basis.name = h[ROOT_METHOD] == ROOT_QR ? VECTORS_NAME : "eigenbasis";
    basis.identity = h[ROOT_METHOD] == ROOT_QR;
    basis.fill = basis.identity ? 1 : 0;
    if (pd_plan_slot(plan, &factor) < 0 || pd_plan_slot(plan, &inverse) < 0) return PD_NO_MEMORY;
    if (slots->each > 2 && pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int plan_factors(pd_plan *plan, const pd_shape *declared, const double *h)
{
    const shampoo_own *own = plan->own;
    shampoo_layout slots = pd_shampoo_layout(h);
    int rc = PD_OK;

    for (size_t b = 0; b < plan->n_blocks; b++)
        for (int d = 0; rc == PD_OK && d < plan->shape.rank; d++)
            if (own->place[d] >= 0) rc = plan_factor(plan, declared, &slots, (int64_t)b, d, h);
    return rc;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the operations of a step for each element of a block and each of its indices along dimension d, which has a
 * factor: 1 for the factor, and 2 for the direction (a whole product). KL-Shampoo has another product for each of the
 * other dimensions. Corrected eigenvalues take two more: gradient and direction are rotated, and the direction back. */
static double products_of(const pd_plan *plan, const double *h)
{
    const shampoo_own *own = plan->own;

    if (pd_shampoo_is_corrected(h)) return 1 + 3 * 2;
    return 1 + 2 + (pd_shampoo_is_kl(h) ? 2.0 * (own->n_factored - 1) : 0);
}

/* Sets the plan's scratch memory to the most that any block needs, and adds up the floating-point operations of a step.
 * All blocks are checked, since the largest one may need less than a smaller one: a large block may be used where it
 * lies in the tensor, while a smaller one is copied. */
static void plan_work(pd_plan *plan, const double *h)
{
    const shampoo_own *own = plan->own;

    for (size_t b = 0; b < plan->n_blocks; b++) {
        const pd_block *block = &plan->blocks[b];
        shampoo_scratch parts = pd_shampoo_scratch(plan, block, h);
        int64_t floats = parts.gradient + parts.filtered + parts.direction + parts.products + parts.whitened;
        plan->scratch_floats = (size_t)larger((int64_t)plan->scratch_floats, floats);
        plan->large_products =
            plan->large_products || (own->n_factored > 0 && pd_block_is_large(block, plan->shape.rank));
        for (int d = 0; d < plan->shape.rank; d++)
            if (own->place[d] >= 0)
                plan->flops +=
                    products_of(plan, h) * (double)pd_block_elements(block, plan->shape.rank) * (double)block->size[d];
        if (h[PRECONDITIONER] != PRECONDITION_SPECTRAL) continue;
        plan->flops += pd_polar_flops(block->size[0], block->size[1], PD_SHAMPOO_POLAR_STEPS);
        plan->large_products = plan->large_products || pd_polar_is_large(block->size[0], block->size[1]);
    }
}

int pd_group_size(int *size, int64_t trainers, int world, pd_error *err)
{
    assert(world >= 1);
    if (trainers != -1 && (trainers < 1 || trainers > world))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Invalid number of trainers per group: %lld. Must be between 1 and %d, the number of workers, "
                       "or set to -1.",
                       (long long)trainers, world);
    if (trainers != -1 && world % trainers != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Invalid number of trainers per group: %lld. Must divide the number of workers, %d.",
                       (long long)trainers, world);
    *size = trainers == -1 ? world : (int)trainers;
    return PD_OK;
}

static int shampoo_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const double *h = declaration->hypers.value;
    int rc, ranks;

    (void)stats;
    if (declaration->world > 0 && (rc = pd_group_size(&ranks, (int64_t)h[TRAINERS], declaration->world, err)) != PD_OK)
        return rc;
    plan->root_delay = h[ROOT_DELAY] < 0 ? PD_ROOT_READY : (int)fmin(h[ROOT_DELAY], 1 << 30);
    if (declaration->shape.rank == 0 && (h[MERGE_DIMS] == 0 || h[TARGET_DIMS] == 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shampoo needs at least one dimension while use_merge_dims is off: declare the parameter with "
                       "shape 1, or set use_merge_dims");
    if (plan->elements == 0) return PD_OK;
    plan->shape = pd_shampoo_cut_shape(&declaration->shape, h);
    if ((rc = pd_shape_check_blocks(&plan->shape, (int64_t)h[MAX_DIM], "max_preconditioner_dim", err)) != PD_OK)
        return rc;
    if ((rc = pd_plan_blocks(plan, (int64_t)h[MAX_DIM])) != PD_OK) return rc;
    if ((rc = pd_shampoo_fill_own(plan, declaration, err)) != PD_OK) return rc;
    if ((rc = plan_whole(plan, &declaration->shape, h)) != PD_OK) return rc;
    if ((rc = plan_sum(plan, declaration->start_step, h)) != PD_OK) return rc;
    if ((rc = plan_factors(plan, &declaration->shape, h)) != PD_OK) return rc;
    plan_work(plan, h);
    return pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY });
}

/* Returns the type communication_dtype, to which a step rounds the changes of the weights: so the changes are exact in
 * this type. Returns 0 with communicate_params and with hyperball: the changes of the weights are then not exact in
 * the type. */
static pd_dtype shampoo_update_dtype(const double *h)
{
    static const pd_dtype types[] = {
        [SEND_FLOAT32] = PD_F32, [SEND_FLOAT16] = PD_F16, [SEND_BFLOAT16] = PD_BF16, [SEND_DEFAULT] = PD_F32
    };
    return h[COMMUNICATE_PARAMS] != 0 || h[HYPERBALL] != 0 ? (pd_dtype)0 : types[(int)h[COMMUNICATION_DTYPE]];
}

/* Blocks share nothing, not even the norms of grafting, so a parameter may be cut where its blocks are. */
static int64_t shampoo_grain(const pd_plan *plan)
{
    return plan->n_blocks > 0 && ((const shampoo_own *)plan->own)->may_be_cut ? plan->blocks[0].size[0] : 0;
}

/* The program of 2026 counts all calls of its step, and that of 2024 those in which some parameter has a gradient. */
static bool shampoo_counts_empty(const double *h)
{
    return h[SEMANTICS] == RELEASE_2026;
}

const pd_optimizer_ops pd_shampoo = {
    .name   = "shampoo",
    .about  = "Meta's PyTorch Distributed Shampoo",
    .hypers = shampoo_hypers,
    .check  = pd_shampoo_check,
    .words_ranges = true,
    .warning = pd_shampoo_warning,
    .plan   = shampoo_plan,
    .gradient_most = PD_PRODUCT_MOST,
    .phases = {
        { .name = "factors", .kind = PD_BLOCKS, .run = pd_shampoo_factors, .skip = pd_shampoo_no_factors },
        { .name = "step", .kind = PD_BLOCKS, .run = pd_shampoo_step },
        { .name = "weigh", .kind = PD_WHOLE, .run = pd_shampoo_weigh, .skip = pd_shampoo_weighs_nothing },
    },
    .capture_phase = 1, .adopt_phase = 1,
    .own_bytes = sizeof(shampoo_own),
    .due     = pd_shampoo_due,
    .task    = pd_shampoo_task,
    .refusal = pd_shampoo_refusal,
    .counts_by_group = true,
    .counts_empty = shampoo_counts_empty,
    .update_dtype = shampoo_update_dtype,
    .grain = shampoo_grain,
    .readout = pd_shampoo_readout,
    .reads_out = pd_shampoo_averages,
};
