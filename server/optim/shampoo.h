/* shampoo.h - inside of the optimizer shampoo: shared by its files (shampoo.c: the row and its roots; shampoo_check.c; shampoo_plan.c; shampoo_step.c;
 * shampoo_move.c), and by its tests. */
#ifndef PD_SHAMPOO_H
#define PD_SHAMPOO_H

#include "graft.h"
#include "plan.h"

#define ROOT_ORDERS (PD_MAX_RANK + 1)       /* a number of dimensions has an entry of inv_root_override each */

/* Hyperparameters, in this order. */
enum {
    LR, BETA1, BETA2, BETA3, EPSILON, MOMENTUM, DAMPENING, WEIGHT_DECAY, MAX_DIM, FREQUENCY, START_STEP, ROOT_OVERRIDE,
    EXPONENT_MULTIPLIER = ROOT_OVERRIDE + ROOT_ORDERS, NESTEROV, BIAS_CORRECTION, DECOUPLED_DECAY, MERGE_DIMS, GRAFTING, GRAFTING_BETA2,
    GRAFTING_EPSILON, PRECONDITIONER_DTYPE, PRECISION, FACTOR_DTYPE, INVERSE_DTYPE, FILTERED_DTYPE, MOMENTUM_DTYPE, GRAFTING_DTYPE, COMPUTATION_DTYPE,
    PROTECTED_EIGH, ROOT_METHOD, ROOT_TOLERANCE, ROOT_ITERATIONS, ROOT_ITERATION_ORDER, TRAINERS, COMMUNICATION_DTYPE, COMMUNICATE_PARAMS,
    TRACK_RESIDUALS, PYTORCH_COMPILE, ROOT_DELAY, ROOT_RETRIES
};
enum { GRAFT_NONE, GRAFT_SGD, GRAFT_ADAGRAD, GRAFT_RMSPROP, GRAFT_ADAM };
enum { STORE_FLOAT32, STORE_BFLOAT16, STORE_FLOAT16, STORE_FLOAT64 };           /* choices of the dtypes in precision_config */
enum { OLD_NONE, OLD_FLOAT32, OLD_FLOAT64 };                                    /* of preconditioner_dtype */
enum { SEND_FLOAT32, SEND_FLOAT16, SEND_BFLOAT16, SEND_DEFAULT };               /* of communication_dtype */
enum { ROOT_EIGEN, ROOT_NEWTON, ROOT_HIGHER_ORDER, ROOT_TRACKED };

/* ---- shampoo_check.c; `h`: values by hyperparameter ---- */

/* The row's check: upstream's own refusals in its words, and what concerns several values. */
int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* The row's warning. */
const char *pd_shampoo_warning(const pd_hypers *declared);

/* ---- shampoo_plan.c ---- */

/* Indices of the slots; -1 of those that a parameter does not have. */
typedef struct shampoo_layout {
    int filtered_grad, momentum, second_moment;
    int factors, each;              /* the first factor's slots, and how many there are for every factor */
} shampoo_layout;
enum { FACTOR, INVERSE, BASIS };    /* what a factor's slots are */

shampoo_layout pd_shampoo_layout(const double *h);
int     pd_shampoo_slot(const shampoo_layout *slots, int64_t factor, int which);
bool    pd_shampoo_factors_are_wide(const double *h);           /* float64 */
bool    pd_shampoo_graft_has_moment(const double *h);
int64_t pd_shampoo_start(const double *h);                      /* first step with Shampoo's direction */
int     pd_shampoo_root_order(const pd_plan *plan, const double *h);
int     pd_shampoo_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

/* A block without anything around it: its own shape, and a box that covers it. */
typedef struct shampoo_box { pd_shape shape; pd_block block; } shampoo_box;
shampoo_box pd_shampoo_box(const pd_plan *plan, const pd_block *block);
/* The parts of a unit's scratch memory, in floats; 0 of those that it does not need. */
typedef struct shampoo_scratch {
    int64_t gradient;               /* the block's gradient, with the penalty's term or because it does not lie together */
    int64_t filtered;               /* D, where gradients are filtered */
    int64_t direction;              /* P, where it may not be D's memory */
    int64_t products;               /* of contraction, or a factor's new term before it is added in float64 */
} shampoo_scratch;
shampoo_scratch pd_shampoo_scratch(const pd_plan *plan, const pd_block *block, const double *h);

/* ---- shampoo_step.c ---- */

/* 1 - beta^t as upstream computes it: in float32, the power too. */
float pd_shampoo_correction(double beta, int64_t t);
/* Roots are computed from the factors of this step. */
bool  pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);

/* Phases over blocks. */
void  pd_shampoo_factors(const pd_unit *unit);
bool  pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count);
void  pd_shampoo_step(const pd_unit *unit);

/* ---- shampoo_move.c: passes over n elements that lie together ---- */

/* F <- beta1 F + gain G;  D = (what is left of G, beta3 F_old + rest G; without `ahead`: F) / correction */
typedef struct shampoo_filter {
    float beta1, gain;
    bool  ahead;                    /* beta3 and rest are in use */
    float beta3, rest;
    float correction;
} shampoo_filter;
void pd_shampoo_filter(float *D, float *F, const float *G, int64_t n, const shampoo_filter *filter);

/* P <- P length + decay W;  M <- momentum M + gain P;  P <- what momentum makes of it;  U = rate P, rounded;  after = before + U, rounded */
typedef struct shampoo_move {
    float length;
    bool  decays;
    float decay;
    bool  has_momentum, nesterov;
    float momentum, gain;
    float rate;                     /* minus the learning rate */
    int   send;                     /* communication_dtype */
    bool  sends_weights;            /* it rounds the weights, else the updates */
} shampoo_move;
/* M: NULL without momentum. After may be before. P becomes what was added to the weights. */
void pd_shampoo_move(float *after, const float *before, float *P, float *M, int64_t n, const shampoo_move *move);

#endif
