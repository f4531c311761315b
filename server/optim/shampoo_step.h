/* shampoo_step.h - the hyperparameters of the optimizer shampoo and their checks, the slots of a parameter, the phases
 * of a step and the tasks. In all functions h[] has the hyperparameters' values. Pure functions. */
#ifndef PD_SHAMPOO_STEP_H
#define PD_SHAMPOO_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "optimizer_ops.h"
#include "paramd/optim.h"
#include "paramd/tensor.h"

/* number of entries of the list inv_root_override: one for each number of dimensions, from 0 on */
#define ROOT_ORDERS (PD_MAX_RANK + 1)

/* number of Newton-Schulz iterations of SpectralDescent */
#define PD_SHAMPOO_POLAR_STEPS 5

/* Indices of shampoo's hyperparameters, in the order of its table of hyperparameters. */
enum {
    LR,
    BETA1,
    BETA2,
    BETA3,
    EPSILON,
    MOMENTUM,
    DAMPENING,
    WEIGHT_DECAY,
    MAX_DIM,
    FREQUENCY,
    START_STEP,
    ROOT_OVERRIDE,
    EXPONENT_MULTIPLIER = ROOT_OVERRIDE + ROOT_ORDERS,
    NESTEROV,
    BIAS_CORRECTION,
    DECOUPLED_DECAY,
    MERGE_DIMS,
    GRAFTING,
    GRAFTING_BETA2,
    GRAFTING_EPSILON,
    PRECONDITIONER_DTYPE,
    PRECISION,
    FACTOR_DTYPE,
    INVERSE_DTYPE,
    FILTERED_DTYPE,
    MOMENTUM_DTYPE,
    GRAFTING_DTYPE,
    COMPUTATION_DTYPE,
    PROTECTED_EIGH,
    ROOT_METHOD,
    ROOT_TOLERANCE,
    ROOT_ITERATIONS,
    ROOT_ITERATION_ORDER,
    TRAINERS,
    COMMUNICATION_DTYPE,
    COMMUNICATE_PARAMS,
    TRACK_RESIDUALS,
    PYTORCH_COMPILE,
    ROOT_DELAY,
    ROOT_RETRIES,
    PRECONDITIONER,
    NORMALIZE,
    TRACE_EXPONENT,
    SEMANTICS,
    EXPONENTS,
    IGNORED_DIMS,
    DROP_WEIGHT,
    DECAY_TYPE,
    PEAK_LR,
    DEFICIENT,
    RANK_ATOL,
    RANK_RTOL,
    TARGET_DIMS,
    TRAIN_COEFF,
    EVAL_COEFF,
    HYPERBALL
};
enum { GRAFT_NONE, GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_ADAM };
/* element types that the hyperparameters of precision_config may choose */
enum { STORE_FLOAT32, STORE_BFLOAT16, STORE_FLOAT16, STORE_FLOAT64 };
/* values of the hyperparameter preconditioner_dtype */
enum { OLD_NONE, OLD_FLOAT32, OLD_FLOAT64 };
enum { SEND_FLOAT32, SEND_FLOAT16, SEND_BFLOAT16, SEND_DEFAULT }; /* values of the hyperparameter communication_dtype */
/* Values of the hyperparameter preconditioner_config. From PRECONDITION_SPECTRAL on there are no factors; from
 * PRECONDITION_SGD on they are the grafts in the same order, each without Shampoo. */
enum {
    PRECONDITION_PLAIN,
    PRECONDITION_KL,
    PRECONDITION_PLAIN_BASES,
    PRECONDITION_KL_BASES,
    PRECONDITION_CORRECTED,
    PRECONDITION_SPECTRAL,
    PRECONDITION_SIGN,
    PRECONDITION_SGD,
    PRECONDITION_ADAM = PRECONDITION_SGD + GRAFT_ADAM - GRAFT_SGD
};
enum { ROOT_EIGEN, ROOT_NEWTON, ROOT_HIGHER_ORDER, ROOT_TRACKED, ROOT_QR };
enum { RELEASE_2024, RELEASE_2026 }; /* values of the hyperparameter semantics */
/* values of the hyperparameter weight_decay_type */
enum { DECAY_DEFAULT, DECAY_L2, DECAY_DECOUPLED, DECAY_CORRECTED, DECAY_INDEPENDENT };
/* values of the hyperparameter rank_deficient_stability_config */
enum { PERTURB_BEFORE, PERTURB_AFTER, PSEUDO_INVERSE };

/* Indices of a parameter's slots. -1: the parameter does not have this slot. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment, corrected;
    int apart,
        sum; /* the other weights minus these; the first of two numbers: sum of weights of steps, and last step */
    int factors, each; /* index of the first slot of the first factor; number of slots that each factor has */
} shampoo_layout;
/* The slots of one factor, as offsets from its first slot. The eigenvectors of a factor without a root are in place of
 * the root. */
enum { FACTOR, INVERSE, BASIS, VECTORS = INVERSE };

/* The optimizer's own struct (pd_plan.own). */
typedef struct shampoo_own {
    /* place[d]: the number of dimension d among those that have a factor; -1: it has none */
    int place[PD_MAX_RANK], n_factored;
    /* With semantics=2026: the root of dimension d is A^-exponent[d]. With PRECONDITION_CORRECTED the exponent of the
     * corrected eigenvalues is -exponent[0]. */
    double exponent[PD_MAX_RANK];
    double peak_lr;  /* the rate of which decay is a share (DECAY_CORRECTED, DECAY_INDEPENDENT) */
    bool may_be_cut; /* portions of the parameter have the blocks that it has */
} shampoo_own;

/* Reads the texts inverse_exponent_override and ignored_basis_change_dims. exponent[o][d] gets the exponent of
 * dimension d in blocks of o dimensions; NAN: the default. Bit d of ignored[o] is set if the dimension is not rotated.
 * PD_INVALID_ARGUMENT: the text is not such a list. PD_NO_MEMORY. */
int pd_shampoo_read_exponents(const char *text, double (*exponent)[PD_MAX_RANK], pd_error *err);
int pd_shampoo_read_ignored(const char *text, unsigned *ignored, pd_error *err);
/* Returns the shape that is cut into blocks: that of the parameter, in which small dimensions are merged unless the
 * user has switched that off. A scalar becomes a vector of one element. */
pd_shape pd_shampoo_cut_shape(const pd_shape *shape, const double *h);
/* Fills plan->own. The plan has its shape and blocks. PD_INVALID_ARGUMENT: the exponent of a dimension suits no root
 * that root_inverse_method can compute, or SpectralDescent has blocks that are no matrices. */
int pd_shampoo_fill_own(pd_plan *plan, const pd_declaration *declaration, pd_error *err);

/* Check the hyperparameters, as pd_optimizer_ops.check, and warn of doubtful ones, as pd_optimizer_ops.warning. */
int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
const char *pd_shampoo_warning(const pd_hypers *declared);

shampoo_layout pd_shampoo_layout(const double *h);
/* Returns the index of a slot of the factor of dimension d, which must have one, of a block. */
int pd_shampoo_slot(const pd_plan *plan, const shampoo_layout *slots, int64_t block, int d, int which);
/* Return whether the factors are computed from the whitened gradient; whether there are factors; and whether these have
 * bases in place of roots. */
bool pd_shampoo_is_kl(const double *h);
bool pd_shampoo_has_factors(const double *h);
bool pd_shampoo_is_corrected(const double *h);
/* Returns whether roots begin as the identity, and not as zeros. */
bool pd_shampoo_begins_with_identity(const double *h);
int pd_shampoo_decay(const double *h); /* returns a DECAY_* other than DECAY_DEFAULT */
/* Returns the graft: grafting_config, or a first-order optimizer without Shampoo, which is used as a graft is. */
int pd_shampoo_graft(const double *h);
/* Returns the order r of 2024's roots, before exponent_multiplier. */
int pd_shampoo_root_order(const pd_plan *plan, const double *h);
/* Returns the exponent e of the root A^-e of dimension d. */
double pd_shampoo_exponent(const pd_plan *plan, const double *h, int d);
/* returns whether the factors are kept in float64 */
bool pd_shampoo_factors_are_wide(const double *h);
bool pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h); /* returns the first step that uses Shampoo's direction */

/* A block that was copied out of its parameter into contiguous memory: the shape of the copy, and a pd_block that
 * covers all of it. */
typedef struct shampoo_box {
    pd_shape shape;
    pd_block block;
} shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* Sizes of the parts of a thread's scratch memory for one block, in floats. 0: the part is not needed. */
typedef struct shampoo_scratch {
    /* size of a copy of the gradient of a block, needed if the L2 penalty is added to it, or if the block is not used
     * in place */
    int64_t gradient;
    int64_t filtered;  /* size of the filtered gradient; 0 if gradients are not filtered */
    int64_t direction; /* size of the preconditioned direction; 0 if it can overwrite the filtered gradient */
    /* Size of the work memory for products with the roots. It also holds the new term of a factor before the term is
     * added in float64. */
    int64_t products;
    /* size of the gradient multiplied by roots or rotated, for KL-Shampoo's factors and for corrected eigenvalues, with
     * the work memory of that; 0 for other factors */
    int64_t whitened;
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

/* Returns the bias correction 1 - beta^t as the original implementation computes it: in float32, including the
 * power. */
float pd_shampoo_correction(double beta, int64_t t);
/* Returns the bias correction of the factors and of the corrected eigenvalues in step t. */
float pd_shampoo_factor_correction(const double *h, int64_t t);
/* Returns whether this step starts to compute new inverse roots from the factors. */
bool pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);

/* The phases of a shampoo step, each for one block. pd_shampoo_factors updates the factors and the second moment of the
 * graft in steps that start to compute roots; pd_shampoo_no_factors returns whether a step skips this phase.
 * pd_shampoo_step does the rest. */
void pd_shampoo_factors(const pd_unit *unit);
bool pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count);
void pd_shampoo_step(const pd_unit *unit);
/* Counts the step in the sum of weights of all steps, which an average over all of them needs. */
void pd_shampoo_weigh(const pd_unit *unit);
bool pd_shampoo_weighs_nothing(const pd_plan *plan, const double *h, int64_t count);
/* Returns whether iterates are averaged, so that the weights to evaluate with are others; computes these. */
bool pd_shampoo_averages(const double *h);
void pd_shampoo_readout(const pd_readout *readout);

/* What the tasks compute: the inverse root or the basis of one factor. They are pd_optimizer_ops.task and .refusal;
 * pd_shampoo_task_spec returns the task of dimension d of a block. */
int pd_shampoo_task(pd_task_view *task);
int pd_shampoo_refusal(const pd_task_view *task, pd_error *err);
pd_task_spec pd_shampoo_task_spec(const pd_plan *plan, const shampoo_layout *slots, int64_t block, int d,
                                  const double *h);

/* Computes the number of ranks in a group that shares out blocks. *size gets `trainers` (the option
 * num_trainers_per_group of Meta's Shampoo), or `world`, the number of all workers, if `trainers` is -1.
 * PD_INVALID_ARGUMENT: `trainers` is not between 1 and `world` (>= 1), or does not divide it. */
int pd_group_size(int *size, int64_t trainers, int world, pd_error *err);

#endif
