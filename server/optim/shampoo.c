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
 * preconditioner_config=RootInvKLShampoo is Meta's KL-Shampoo (2026): the block of G that is contracted is multiplied
 * by the R of all dimensions but k before, and the R begin as the identity. It has no 1/n; `normalize` adds it.
 *
 * |X| is the norm of X. If biases are corrected, c1 = 1 - beta1^t and c2 = 1 - beta2^t, otherwise both are 1. t is the
 * number of the step, which the parameters of a step group count together. r is inv_root_override, or by default twice
 * the number of dimensions. All state begins at zero, the roots too.
 *
 * graft(D) is the direction of a first-order optimizer, the graft: see graft.h. It has second moments of its own in the
 * state. partition.h merges dimensions, and defines the blocks and their order.
 *
 * Defects of Meta's program ("upstream") are not copied. For example, a 0 inside the list inv_root_override means the
 * default, as a plain 0 does. Google's Shampoo is another optimizer, scalable_shampoo. */
#include "shampoo_step.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block_products.h"
#include "hyperball.h"
#include "kernels.h"
#include "linalg.h"
#include "partition.h"
#include "root.h"
#include "root_types.h"

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
    [ROOT_METHOD] = { "root_inverse_method", PD_CHOICE, ROOT_EIGEN, 0, 0, "eigen|newton|higher_order|tracked",
                      "method that computes roots; upstream has no tracked", false },
    [ROOT_TOLERANCE] = { "root_inverse_tolerance", PD_REAL, 1e-6, 0, INFINITY, NULL,
                         "newton, higher_order: the iteration ends when its error is at most this", true },
    [ROOT_ITERATIONS] = { "root_inverse_max_iterations", PD_INT, 100, 1, LARGEST_INT, NULL,
                          "newton, higher_order: largest number of iterations", true },
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
    [PRECONDITIONER] = { "preconditioner_config", PD_CHOICE, 0, 0, 0, "RootInvShampoo|RootInvKLShampoo",
                         "factors of the gradient; or of the gradient whitened by the other roots (Meta's KL-Shampoo, "
                         "2026)",
                         false },
    [NORMALIZE] = { "preconditioner_config.normalize", PD_FLAG, 0, 0, 1, NULL,
                    "divide each factor's new term by the size of the other dimensions, as KL-Shampoo's paper does; "
                    "upstream does not",
                    false },
    [TRACE_EXPONENT] = { "preconditioner_config.trace_scaling_exponent", PD_REAL, 0, 0, 10, NULL,
                         "divide a factor by this power of its trace before its root is computed", false },
    [HYPERBALL] = PD_HYPER_HYPERBALL,
    { .name = NULL },
};

enum { TEXT = 40 };

/* Writes a number as Python prints it, for instance 0.0, 1.0001 or 1e-08. Returns `text`. */
static const char *python(double value, char *text)
{
    double size = fabs(value);
    bool plain = value == 0 || (size >= 1e-4 && size < 1e16);

    for (int digits = plain ? 1 : 0; digits < 18; digits++) {
        snprintf(text, TEXT, plain ? "%.*f" : "%.*e", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

/* Fills an error with a text that contains one number. Returns PD_INVALID_ARGUMENT. */
static int refuse(pd_error *err, const char *before, double value, const char *after)
{
    char text[TEXT];
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s%s%s", before, python(value, text), after);
}

static int refuse_whole(pd_error *err, const char *before, double value, const char *after)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s%.0f%s", before, value, after);
}

/* Checks the ranges of rates and decay factors. An error that Meta's implementation also raises has the same text as
 * there, so that users find Meta's documentation when they search for it. */
static int check_rates(const double *h, pd_error *err)
{
    if (!(h[LR] >= 0)) return refuse(err, "Invalid learning rate: ", h[LR], ". Must be >= 0.0.");
    if (!(h[BETA1] >= 0 && h[BETA1] < 1))
        return refuse(err, "Invalid beta parameter at index 0: ", h[BETA1], ". Must be in [0.0, 1.0).");
    if (!(h[BETA2] > 0 && h[BETA2] <= 1))
        return refuse(err, "Invalid beta parameter at index 1: ", h[BETA2], ". Must be in (0.0, 1.0].");
    if (h[BETA3] != -1 && !(h[BETA3] >= 0 && h[BETA3] < 1))
        return refuse(err, "Invalid beta3 parameter: ", h[BETA3], ". Must be in [0.0, 1.0).");
    if (!(h[EPSILON] > 0)) return refuse(err, "Invalid epsilon value: ", h[EPSILON], ". Must be > 0.0.");
    if (!(h[MOMENTUM] >= 0 && h[MOMENTUM] < 1))
        return refuse(err, "Invalid momentum parameter: ", h[MOMENTUM], ". Must be [0.0, 1.0).");
    if (!(h[DAMPENING] >= 0 && h[DAMPENING] < 1))
        return refuse(err, "Invalid dampening parameter: ", h[DAMPENING], ". Must be [0.0, 1.0).");
    if (!(h[WEIGHT_DECAY] >= 0))
        return refuse(err, "Invalid weight_decay value: ", h[WEIGHT_DECAY], ". Must be >= 0.0.");
    return PD_OK;
}

static int check_grafting(const double *h, pd_error *err)
{
    bool averages = h[GRAFTING] == GRAFT_RMSPROP || h[GRAFTING] == GRAFT_ADAM;

    if (averages && isfinite(h[GRAFTING_BETA2]) && !(h[GRAFTING_BETA2] > 0 && h[GRAFTING_BETA2] <= 1))
        return refuse(err, "Invalid grafting beta2 parameter: ", h[GRAFTING_BETA2], ". Must be in (0.0, 1.0].");
    if (pd_shampoo_graft_has_moment(h) && isfinite(h[GRAFTING_EPSILON]) && !(h[GRAFTING_EPSILON] > 0))
        return refuse(err, "Invalid epsilon value: ", h[GRAFTING_EPSILON], ". Must be > 0.0.");
    return PD_OK;
}

/* Fills the error about a negative entry of the hyperparameter inv_root_override. The text shows one number if all
 * entries are equal, otherwise the list as given. */
static int refuse_override(const double *override, pd_error *err)
{
    char list[256] = "";
    int n = ROOT_ORDERS, used = 0, same = 1;

    while (same < ROOT_ORDERS && override[same] == override[0]) same++;
    if (same == ROOT_ORDERS) return refuse_whole(err, "Invalid exponent override: ", override[0], ". Must be >= 0.");
    while (override[n - 1] == 0) n--;
    for (int i = 0; i < n; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%.0f", i > 0 ? ", " : "", override[i]);
    return pd_fail(err, PD_INVALID_ARGUMENT, "Invalid exponent override list: [%s]. All values must be >= 0.", list);
}

static int check_preconditioning(const double *h, pd_error *err)
{
    if (h[MAX_DIM] < 1)
        return refuse_whole(err, "Invalid max preconditioner dimension: ", h[MAX_DIM], ". Must be >= 1.");
    if (h[FREQUENCY] < 1) return refuse_whole(err, "Invalid precondition frequency: ", h[FREQUENCY], ". Must be >= 1.");
    if (h[START_STEP] < -1)
        return refuse_whole(err, "Invalid start preconditioning step: ", h[START_STEP], ". Must be >= -1.");
    if (h[START_STEP] >= 0 && h[START_STEP] < h[FREQUENCY])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Invalid start_preconditioning_step value: %.0f. Must be >= precondition_frequency=%.0f.",
                       h[START_STEP], h[FREQUENCY]);
    for (int i = 0; i < ROOT_ORDERS; i++)
        if (h[ROOT_OVERRIDE + i] < 0) return refuse_override(h + ROOT_OVERRIDE, err);
    return PD_OK;
}

static bool has_precision(const double *h)
{
    bool given = h[PRECISION] != 0;

    for (int i = FACTOR_DTYPE; i <= COMPUTATION_DTYPE; i++) given |= h[i] != STORE_FLOAT32;
    return given;
}

static int check_execution(const double *h, pd_error *err)
{
    if (h[PRECONDITIONER_DTYPE] != OLD_NONE && has_precision(h))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Both preconditioner_dtype and precision_config are provided. "
                       "Please use only precision_config as preconditioner_dtype is deprecated.");
    if (h[PYTORCH_COMPILE] != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Backend does NOT support Pytorch 2.0 compile. Switch to use_pytorch_compile=False.");
    if (h[TRAINERS] != -1 && h[TRAINERS] < 1)
        return refuse_whole(err, "Invalid number of trainers per group: ", h[TRAINERS],
                            ". Must be at least 1 or set to -1.");
    if ((h[ROOT_METHOD] == ROOT_NEWTON || h[ROOT_METHOD] == ROOT_HIGHER_ORDER) && h[EXPONENT_MULTIPLIER] != 1)
        return refuse(err,
                      "exponent_multiplier of shampoo must be 1 with this root_inverse_method, which computes only "
                      "plain roots: got ",
                      h[EXPONENT_MULTIPLIER], "; use eigen or tracked");
    if (h[ROOT_DELAY] > h[FREQUENCY])
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "root_delay of shampoo: expected at most precondition_frequency, %.0f, got %.0f", h[FREQUENCY],
                       h[ROOT_DELAY]);
    return PD_OK;
}

/* Refuses a step in which beta1 or momentum changes between 0 and another value: the optimizer state has a tensor for
 * each of them only if it was not 0 when the parameter was declared. */
static int check_state(const double *declared, const double *h, pd_error *err)
{
    static const struct {
        int index;
        const char *name;
    } all[] = { { BETA1, "betas[0]" }, { MOMENTUM, "momentum" } };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if ((declared[all[i].index] != 0) != (h[all[i].index] != 0))
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "shampoo: %s cannot change from %g to %g while the job runs: only between values above 0",
                           all[i].name, declared[all[i].index], h[all[i].index]);
    return PD_OK;
}

static int shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;
    int rc = check_rates(h, err);

    if (rc == PD_OK) rc = check_preconditioning(h, err);
    if (rc == PD_OK) rc = check_grafting(h, err);
    if (rc == PD_OK) rc = check_execution(h, err);
    return rc == PD_OK ? check_state(declared->value, h, err) : rc;
}

static const char *shampoo_warning(const pd_hypers *declared)
{
    const double *h = declared->value;
    bool overrides = false;

    for (int i = 0; i < ROOT_ORDERS; i++) overrides |= h[ROOT_OVERRIDE + i] > 0;
    if (overrides && h[EXPONENT_MULTIPLIER] != 1)
        return "inv_root_override and exponent_multiplier both change the exponent of the inverse roots; upstream "
               "advises one of them";
    if (h[PRECONDITIONER] == PRECONDITION_KL && h[ROOT_OVERRIDE + 2] == 2 && h[NORMALIZE] == 0 &&
        h[TRACE_EXPONENT] == 0)
        return "RootInvKLShampoo with inv_root_override 2: one factor of a block that is not square grows without end, "
               "and the other shrinks until epsilon stops it; set preconditioner_config.normalize=yes";
    if (h[NESTEROV] != 0 && h[MOMENTUM] == 0) return "use_nesterov has no effect without momentum";
    return NULL;
}

static int root_order(const pd_plan *plan, const double *h)
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
    inverse.identity = h[PRECONDITIONER] == PRECONDITION_KL;
    inverse.fill = inverse.identity ? 1 : 0;
    inverse.storage = storage_of(h[INVERSE_DTYPE]);
    basis.name = "eigenbasis";
    task.input[0] = pd_shampoo_slot(slots, k, FACTOR);
    task.output[0] = pd_shampoo_slot(slots, k, INVERSE);
    task.input[1] = task.output[1] = pd_shampoo_slot(slots, k, BASIS);
    task.exponent = root_order(plan, h);
    task.cost = pd_root_flops(method_of(h), side, root_order(plan, h));
    task.scratch = pd_root_scratch(method_of(h), is_retried(h), side, root_order(plan, h));
    if (pd_plan_slot(plan, &factor) < 0 || pd_plan_slot(plan, &inverse) < 0) return PD_NO_MEMORY;
    if (slots->each > 2 && pd_plan_slot(plan, &basis) < 0) return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Sets the plan's scratch memory to the most that any block needs, and adds up the floating-point operations of a step.
 * All blocks are checked, since the largest one may need less than a smaller one: a large block may be used where it
 * lies in the tensor, while a smaller one is copied. */
static void plan_work(pd_plan *plan, const double *h)
{
    for (size_t b = 0; b < plan->n_blocks; b++) {
        const pd_block *block = &plan->blocks[b];
        shampoo_scratch parts = pd_shampoo_scratch(plan, block, h);
        int64_t floats = parts.gradient + parts.filtered + parts.direction + parts.products + parts.whitened;
        double whitens = h[PRECONDITIONER] == PRECONDITION_KL ? 2.0 * (plan->shape.rank - 1) : 0;
        plan->scratch_floats = (size_t)larger((int64_t)plan->scratch_floats, floats);
        plan->large_products = plan->large_products || pd_block_is_large(block, plan->shape.rank);
        /* Operations for each element of the block and each dimension d: as many as the block has indices in d for the
         * factor, and twice as many for the direction (a whole product). KL-Shampoo has another product for each of the
         * other dimensions. */
        for (int d = 0; d < plan->shape.rank; d++)
            plan->flops +=
                (3.0 + whitens) * (double)pd_block_elements(block, plan->shape.rank) * (double)block->size[d];
    }
}

/* Returns the shape that is cut into blocks: the parameter's shape, with small dimensions merged if use_merge_dims is
 * on. A scalar becomes a vector of one element. */
static pd_shape cut_shape(const pd_shape *shape, const double *h)
{
    pd_shape merged = h[MERGE_DIMS] != 0 ? pd_shape_merged(shape, (int64_t)h[MAX_DIM]) : *shape;

    return merged.rank > 0 ? merged : (pd_shape){ .rank = 1, .dim = { 1 } };
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
    shampoo_layout slots = pd_shampoo_layout(h);
    int rc, ranks;

    (void)stats;
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
    return pd_hyperball_plan(plan, declaration, (pd_hyperball_use){ HYPERBALL, LR, WEIGHT_DECAY });
}

/* Why a task gives no root: the root is not finite (NOT_FINITE), or the method failed (FAILED). */
enum { NOT_FINITE = PD_OUT_OF_RANGE, FAILED = PD_ABORTED };

static pd_root_want want_of(const pd_task_view *task)
{
    static const pd_root_method methods[] = { [ROOT_EIGEN] = PD_ROOT_EIGH,
                                              [ROOT_NEWTON] = PD_ROOT_COUPLED,
                                              [ROOT_HIGHER_ORDER] = PD_ROOT_HIGHER_ORDER,
                                              [ROOT_TRACKED] = PD_ROOT_TRACKED };
    const double *h = task->hyper;
    int p = root_order(task->plan, h);

    return (pd_root_want){ .method = methods[(int)h[ROOT_METHOD]],
                           .p = p,
                           .exponent = h[EXPONENT_MULTIPLIER] / p,
                           .epsilon = h[EPSILON],
                           .ridge = PD_RIDGE_SHIFTED,
                           .most_error = INFINITY,
                           .retries =
                               (int)h[ROOT_RETRIES] + (h[PROTECTED_EIGH] != 0 && h[ROOT_METHOD] == ROOT_EIGEN ? 1 : 0),
                           .q = 1,
                           .tolerance = h[ROOT_TOLERANCE],
                           .iterations = (int)h[ROOT_ITERATIONS],
                           .order = (int)h[ROOT_ITERATION_ORDER] };
}

/* Returns why a factor has no root: it has a NaN (PD_UNFIT_NAN), or infinities but no NaN (PD_UNFIT_INF). PD_FIT: it is
 * finite. A finite factor, the usual case, costs one fast scan. */
static pd_unfit unfit_of(const float *A, const double *wide, int64_t n)
{
    pd_unfit unfit = PD_FIT;

    if (wide != NULL ? pd_all_finite_f64(wide, n) : pd_all_finite(A, PD_F32, n)) return PD_FIT;
    for (int64_t i = 0; i < n; i++) {
        double a = wide != NULL ? wide[i] : (double)A[i];
        if (isnan(a)) return PD_UNFIT_NAN;
        if (isinf(a)) unfit = PD_UNFIT_INF;
    }
    return unfit;
}

/* Divides a factor by a power of its trace, in place. */
static void scale_by_trace(float *A, double *wide, int64_t side, const double *h)
{
    double trace = 0, by;

    for (int64_t i = 0; i < side; i++) trace += wide != NULL ? wide[i * side + i] : (double)A[i * side + i];
    by = pow(fmax(trace, h[EPSILON]), -h[TRACE_EXPONENT]);
    for (int64_t i = 0; i < side * side; i++) {
        if (wide != NULL)
            wide[i] *= by;
        else
            A[i] *= (float)by;
    }
}

/* Divides a factor by its bias correction, in place, and by a power of its trace if that is wanted. */
static void correct(const pd_task_view *task, float *A, double *wide, int64_t side)
{
    const double *h = task->hyper;
    int64_t n = side * side;
    float correction = h[BIAS_CORRECTION] != 0 && h[BETA2] < 1 ? pd_shampoo_correction(h[BETA2], task->count) : 1.0f;

    for (int64_t i = 0; i < n; i++) {
        if (wide != NULL)
            wide[i] /= (double)correction;
        else
            A[i] /= correction;
    }
    if (h[TRACE_EXPONENT] != 0) scale_by_trace(A, wide, side, h);
}

/* Computes the inverse root of a factor. A float64 factor is rounded to float32 first, unless the method is
 * eigendecomposition. */
static int root_of(const pd_task_view *task, float *A, double *wide, int64_t side, pd_root_report *report)
{
    pd_root_want want = want_of(task);
    pd_mat X = pd_mat_dense(task->output[0], side, side), Q = { 0 };

    if (wide != NULL && want.method == PD_ROOT_EIGH) return pd_root_wide(X, wide, &want, report);
    for (int64_t i = 0; wide != NULL && i < side * side; i++) A[i] = (float)wide[i];
    if (want.method == PD_ROOT_TRACKED) {
        Q = pd_mat_dense(task->output[1], side, side);
        for (int64_t i = 0; i < side * side; i++) Q.at[i] = task->input[1][i];
    }
    return pd_root(X, Q, pd_mat_dense(A, side, side), &want, report);
}

static int shampoo_task(pd_task_view *task)
{
    int64_t side = pd_statistics_side(task->plan, task->spec->block), n = side * side;
    double *wide = pd_shampoo_factors_are_wide(task->hyper) ? (double *)(void *)task->input[0] : NULL;
    pd_root_report report = { 0 };
    int rc;

    correct(task, task->input[0], wide, side);
    if ((task->unfit = unfit_of(task->input[0], wide, n)) != PD_FIT) {
        task->error = NAN;
        return PD_INVALID_ARGUMENT;
    }
    /* A method that fails may leave the output unwritten, so the output is set to zeros first. */
    for (int64_t i = 0; i < n; i++) task->output[0][i] = 0;
    rc = root_of(task, task->input[0], wide, side, &report);
    task->error = rc == PD_OUT_OF_RANGE ? NAN : report.error;
    task->condition = report.condition;
    if (rc != PD_OUT_OF_RANGE) return rc;
    if (task->hyper[ROOT_METHOD] == ROOT_HIGHER_ORDER) return FAILED;
    return pd_all_finite(task->output[0], PD_F32, n) ? FAILED : NOT_FINITE;
}

/* Makes the step fail because a root failed, if the original implementation raises an exception in this case. If the
 * original only warns, the step continues with the last good root. */
static int shampoo_refusal(const pd_task_view *task, pd_error *err)
{
    int rank = task->plan->shape.rank, block = task->spec->block / rank, dim = task->spec->block % rank;

    if (task->unfit == PD_UNFIT_NAN)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "Encountered nan values in bias-corrected factor matrix block_%d.%d! To mitigate, check if nan "
                       "inputs are being "
                       "passed into the network or nan gradients are being passed to the optimizer.",
                       block, dim);
    if (task->unfit == PD_UNFIT_INF)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "Encountered inf values in bias-corrected factor matrix block_%d.%d! In some cases, this may be due to "
            "divergence of the algorithm. To mitigate, try decreasing the learning rate or increasing grafting "
            "epsilon.",
            block, dim);
    if (task->status == NOT_FINITE)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "Encountered nan or inf values in inverse factor matrix block_%d.%d! To mitigate, try increasing epsilon, "
            "starting later (start_preconditioning_step), or preconditioner_dtype=float64.",
            block, dim);
    if (task->status != PD_OK && task->hyper[PROTECTED_EIGH] == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "the inverse root of factor matrix block_%d.%d failed, and use_protected_eigh is off", block,
                       dim);
    return PD_OK;
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
    return plan->n_blocks > 0 ? plan->blocks[0].size[0] : 0;
}

const pd_optimizer_ops pd_shampoo = {
    .name   = "shampoo",
    .about  = "Meta's PyTorch Distributed Shampoo",
    .hypers = shampoo_hypers,
    .check  = shampoo_check,
    .words_ranges = true,
    .warning = shampoo_warning,
    .plan   = shampoo_plan,
    .gradient_most = PD_PRODUCT_MOST,
    .phases = {
        { .name = "factors", .kind = PD_BLOCKS, .run = pd_shampoo_factors, .skip = pd_shampoo_no_factors },
        { .name = "step", .kind = PD_BLOCKS, .run = pd_shampoo_step },
    },
    .capture_phase = 1, .adopt_phase = 1,
    .due     = pd_shampoo_due,
    .task    = shampoo_task,
    .refusal = shampoo_refusal,
    .counts_by_group = true,
    .update_dtype = shampoo_update_dtype,
    .grain = shampoo_grain,
};
