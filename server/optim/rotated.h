/* rotated.h - what the optimizers that work in eigenbases (soap.c, kl_shampoo.c) share: hyperparameters, slots, the
 * tasks that refresh the bases, their adoption, and the update of the weights. Pure functions.
 *
 * Each dimension of a block that has a factor has two matrices. The factor GG is a moving average of the block
 * contracted with itself over all other dimensions. The columns of the basis Q are close to the eigenvectors of GG. A
 * task computes new bases from GG and Q after the step, and a later step adopts them before its first phase.
 *
 * The first gradient only makes factors and bases. The weights do not change, and the moments stay zero. */
#ifndef PD_ROTATED_H
#define PD_ROTATED_H

#include "block_rotation.h"
#include "optimizer_ops.h"

/* Indices of the hyperparameters that the optimizers share, the first ones of their tables. */
enum {
    LR,
    BETA1,
    BETA2,
    SHAMPOO_BETA,
    EPS,
    WEIGHT_DECAY,
    FREQUENCY,
    NORMALIZE,
    BLOCK_SIZE,
    ROOT_DELAY,
    AVERAGE_DTYPE,
    FACTOR_DTYPE,
    BASIS_DTYPE,
    PD_ROTATED_HYPERS
};
#define PD_ROTATED_DTYPES "float32|bfloat16"
#define PD_ROTATED_COUNT 9007199254740991.0 /* 2^53 - 1: every whole number up to it is exact in a double */
/* The entries of a table for these hyperparameters, with the defaults of lr, betas and weight_decay. */
#define PD_ROTATED_TABLE(rate, first, second)                                                                          \
    [LR] = { "lr", PD_REAL, rate, 0, INFINITY, NULL, "learning rate", true, false },                                   \
    [BETA1] = { "betas[0]", PD_REAL, first, 0, 1 - 0x1p-53, NULL, "decay of the gradient's average", true, false },    \
    [BETA2] = { "betas[1]", PD_REAL, second, 0, 1 - 0x1p-53, NULL, "decay of the squared gradient's average",          \
                true,       false },                                                                                   \
    [SHAMPOO_BETA] = { "shampoo_beta",                                                                                 \
                       PD_REAL,                                                                                        \
                       -1,                                                                                             \
                       -1,                                                                                             \
                       1,                                                                                              \
                       NULL,                                                                                           \
                       "decay of the factors, below 1; below 0: betas[1] of the first step",                           \
                       false,                                                                                          \
                       false },                                                                                        \
    [EPS] = { "eps", PD_REAL, 1e-8, 0, INFINITY, NULL, "added to the denominator", true, false },                      \
    [WEIGHT_DECAY] = { "weight_decay",                                                                                 \
                       PD_REAL,                                                                                        \
                       0.01,                                                                                           \
                       0,                                                                                              \
                       INFINITY,                                                                                       \
                       NULL,                                                                                           \
                       "factor of lr by which the weights shrink after the update",                                    \
                       true,                                                                                           \
                       false },                                                                                        \
    [FREQUENCY] = { "precondition_frequency",                                                                          \
                    PD_INT,                                                                                            \
                    10,                                                                                                \
                    1,                                                                                                 \
                    PD_ROTATED_COUNT,                                                                                  \
                    NULL,                                                                                              \
                    "steps from one refresh of the bases to the next",                                                 \
                    false,                                                                                             \
                    false },                                                                                           \
    [NORMALIZE] = { "normalize_grads",                                                                                 \
                    PD_FLAG,                                                                                           \
                    0,                                                                                                 \
                    0,                                                                                                 \
                    1,                                                                                                 \
                    NULL,                                                                                              \
                    "divide the direction by its root mean square",                                                    \
                    false,                                                                                             \
                    false },                                                                                           \
    [BLOCK_SIZE] = { "block_size",                                                                                     \
                     PD_INT,                                                                                           \
                     0,                                                                                                \
                     0,                                                                                                \
                     2147483647,                                                                                       \
                     NULL,                                                                                             \
                     "largest side of a block, each with factors of its own; 0: the parameter is one block",           \
                     false,                                                                                            \
                     false },                                                                                          \
    [ROOT_DELAY] = { "root_delay",                                                                                     \
                     PD_INT,                                                                                           \
                     1,                                                                                                \
                     -1,                                                                                               \
                     PD_ROTATED_COUNT,                                                                                 \
                     "ready",                                                                                          \
                     "steps from the factors to the use of their bases, 1 to precondition_frequency; ready: as soon "  \
                     "as they are done, so results depend on timing",                                                  \
                     false,                                                                                            \
                     false },                                                                                          \
    [AVERAGE_DTYPE] = { "exp_avg_dtype",                                                                               \
                        PD_CHOICE,                                                                                     \
                        0,                                                                                             \
                        0,                                                                                             \
                        0,                                                                                             \
                        PD_ROTATED_DTYPES,                                                                             \
                        "storage type of the averages of the gradient and of its square",                              \
                        false,                                                                                         \
                        false },                                                                                       \
    [FACTOR_DTYPE] = { "factor_dtype", PD_CHOICE, 0, 0, 0, PD_ROTATED_DTYPES, "storage type of the factors",           \
                       false,          false },                                                                        \
    [BASIS_DTYPE] = {                                                                                                  \
        "basis_dtype", PD_CHOICE, 0, 0, 0, PD_ROTATED_DTYPES, "storage type of the bases", false, false                \
    }

/* Indices of the hyperparameters that orthogonalize directions, from an optimizer's own index `first` on, and the
 * entries of a table for them. */
enum { PD_ORTHOGONALIZE, PD_POLYNOMIAL, PD_NS_STEPS, PD_ORTHOGONAL_HYPERS };
#define PD_ORTHOGONAL_TABLE(first)                                                                                     \
    [first +                                                                                                           \
        PD_ORTHOGONALIZE] = { "orthogonalize",                                                                         \
                              PD_FLAG,                                                                                 \
                              0,                                                                                       \
                              0,                                                                                       \
                              1,                                                                                       \
                              NULL,                                                                                    \
                              "bring all singular values of a matrix's direction near each other, as muon does, "      \
                              "with the norm that it had",                                                             \
                              false,                                                                                   \
                              false },                                                                                 \
        [first +                                                                                                       \
            PD_POLYNOMIAL] = { "polynomial",                                                                           \
                               PD_CHOICE,                                                                              \
                               0,                                                                                      \
                               0,                                                                                      \
                               0,                                                                                      \
                               "newton_schulz|polar_express",                                                          \
                               "factors of the iterations that orthogonalize: muon's, or those of arXiv:2505.16932",   \
                               false,                                                                                  \
                               false },                                                                                \
        [first + PD_NS_STEPS] = { "ns_steps", PD_INT, 5, 1, 99, NULL, "iterations that orthogonalize", false, false }

/* What an optimizer wants of its plan. `shape` is cut into blocks: the declared one, or one of its elements in the same
 * order. */
typedef struct pd_rotated_want {
    pd_shape shape;
    int64_t most_side; /* largest dimension that has a factor; 0: no dimension has one */
    bool squares;      /* there is an average of the squared gradient, in rotated coordinates like exp_avg */
    bool rotates;      /* exp_avg is kept in rotated coordinates */
    bool sorts;        /* a refresh sorts the basis by eigenvalue; exp_avg_sq is sorted with it */
    /* each factor has a vector eigen_sqrt_inv as well, with this initial value; 0: it has none */
    float values;
} pd_rotated_want;

/* The optimizers' own struct (pd_plan.own). */
typedef struct pd_rotated {
    double shampoo_beta; /* decay of the factors */
    bool squares, rotates, sorts, has_values;
    bool may_be_cut;
    bool orthogonalizes, express; /* whether directions are orthogonalized, and by Polar Express */
    int ns_steps;                 /* number of iterations that orthogonalize */
    int each, n_factored;         /* slots of a factor, and number of dimensions that have one */
    int first, direction;         /* indices of the first slot of the first factor, and of the slot `direction` */
    int place[PD_MAX_RANK];       /* the number of a dimension among those that have a factor; -1: it has none */
} pd_rotated;

enum { EXP_AVG, EXP_AVG_SQ };            /* indices of slots; EXP_AVG_SQ only with `squares` */
enum { PD_FACTOR, PD_BASIS, PD_VALUES }; /* the slots of a factor, as offsets from its first one */

/* Returns a matrix or vector of each dimension of a block in `at`: NULL for a dimension that has no factor. */
void pd_rotated_find(const pd_plan *plan, int64_t block, int which, float *const *slot, float **at);

/* Checks the shared hyperparameters: conditions on several of them, and limits that depend on another one. */
int pd_rotated_check(const char *optimizer, const double *h, pd_error *err);
/* Adds slots, blocks and tasks to the plan, and fills plan->own. */
int pd_rotated_plan(pd_plan *plan, const pd_declaration *declaration, const pd_rotated_want *want, pd_error *err);

/* Plans that directions are orthogonalized, if the option is set and the parameter, with merged dimensions, is a
 * matrix. Called after pd_rotated_plan. `first` is the index of the option. */
void pd_rotated_plan_orthogonal(pd_plan *plan, const double *h, int first);
/* The phase that orthogonalizes a direction after it was stored (pd_rotated_direct). The whole parameter is one matrix,
 * whatever its blocks are. pd_rotated_leaves_direction returns true if a step skips the phase. */
void pd_rotated_orthogonalize(const pd_unit *unit);
bool pd_rotated_leaves_direction(const pd_plan *plan, const double *h, int64_t count);

/* Updates the factor of dimension d of a block: GG <- shampoo_beta GG + (1 - shampoo_beta) scale (the block contracted
 * with itself). */
void pd_rotated_accumulate(const pd_unit *unit, const pd_block_view *view, int d, double scale);
/* Updates the averages exp_avg and exp_avg_sq of a block from H, its rotated gradient of n elements without gaps, and
 * replaces H by the direction of Adam. */
void pd_rotated_adam(const pd_unit *unit, float *H, int64_t n);
/* Stores a block's direction N in the slot `direction`, and, with normalize_grads, reports the sum of its squares as
 * partial[0]. `N` has no gaps. */
void pd_rotated_direct(const pd_unit *unit, const float *N);
/* Returns where element i of a block without gaps lies in a whole tensor. i is the first element of a run. */
int64_t pd_rotated_whole(const pd_unit *unit, int64_t i, int64_t run);
/* Writes a range of the new weights: after = w - lr weight_decay w with w = before - rate direction. Without `moves`
 * the weights stay. Phase number 0 is the one that stored the direction. */
void pd_rotated_update(const pd_unit *unit, double rate, bool moves);

bool pd_rotated_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);
int pd_rotated_task(pd_task_view *task);
void pd_rotated_adopt(const pd_task_view *task, float *const *slot);
int64_t pd_rotated_grain(const pd_plan *plan);

#endif
