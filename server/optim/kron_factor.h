/* kron_factor.h - the arithmetic of one block of the optimizer kron: the update of its factors, and preconditioning
 * with them. Pure functions; any thread. Source: distributed_kron 1.0.0 (PSGD Kron, arXiv:1512.04202,
 * arXiv:2211.04422). */
#ifndef PD_KRON_FACTOR_H
#define PD_KRON_FACTOR_H

#include "block_products.h"

/* One block of a parameter, and the sizes of its factors. */
typedef struct pd_kron_block {
    int rank;
    bool diagonal[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK]; /* sizes of the block without padding */
    /* Sizes of the block with padding. The update of the factors treats the zeros of the padding as elements, too. */
    int64_t full[PD_MAX_RANK];
    /* Size of each factor in memory, at least `full`. A diagonal factor has `side` numbers. A triangular one has
     * `side` rows of `side` numbers, with zeros below its diagonal. */
    int64_t side[PD_MAX_RANK];
} pd_kron_block;

/* Returns a lower bound of the largest absolute eigenvalue of a symmetric matrix S. If no eigenvalue is negative,
 * the bound is at least 1/sqrt(2) of the largest eigenvalue. `scratch`: 3 floats for each row.
 *
 * Reads only the lower half of S, and changes it: divides it by its largest absolute element. If that element is not
 * positive (NaN, or all elements are 0), it is the result. */
float pd_kron_norm_bound(pd_mat S, float *scratch);

/* An operation with a block's factor Q along one dimension of a tensor x. */
typedef enum pd_kron_operation {
    PD_KRON_APPLY,            /* multiplies by Q: y[..b..] = sum over a of Q[b,a] x[..a..] */
    PD_KRON_APPLY_TRANSPOSED, /* multiplies by Q': y[..b..] = sum over a of Q[a,b] x[..a..] */
    PD_KRON_SOLVE_TRANSPOSED, /* the inverse of PD_KRON_APPLY_TRANSPOSED */
} pd_kron_operation;

/* Applies an operation with the factor Q to x, in place, along dimension `dim`. `side`: floats from one row of Q to
 * the next, if Q is not diagonal. */
void pd_kron_along(const pd_block_view *x, int dim, const float *Q, bool diagonal, int64_t side,
                   pd_kron_operation operation);

/* Returns how many floats factor d takes in memory. */
int64_t pd_kron_factor_floats(const pd_kron_block *block, int d);
/* Return how many floats of scratch memory an update of the factors needs:
 *
 *   - pd_kron_update_scratch: for the arithmetic alone.
 *   - pd_kron_task_scratch: for a task, with the probe and the padded momentum.
 *   - pd_kron_phase_scratch: for a phase, with the momentum and the multipliers as well. */
int64_t pd_kron_update_scratch(const pd_kron_block *block);
int64_t pd_kron_task_scratch(const pd_kron_block *block);
int64_t pd_kron_phase_scratch(const pd_kron_block *block);
/* Computes the change of the factors Q: a multiplier M[d] for each factor Q[d], triangular or diagonal as Q[d] is.
 * The new factor is M[d] Q[d] if it is triangular. If it is diagonal, it is Q[d] + M[d] Q[d], element by element.
 *
 * The two forms round to bfloat16 as the original implementation does: for a diagonal factor, rounding 1 + M first
 * would often give another number.
 *
 * H is the damped momentum, V the probe; both are dense, of the sizes block->full, and are overwritten. */
void pd_kron_multipliers(const pd_kron_block *block, float *H, float *V, float *const *Q, float rate, float *const *M,
                         float *scratch);
/* Computes the new factors in Q from the multipliers M. Rounds them to bfloat16 if `bfloat16` is set. */
void pd_kron_multiply(const pd_kron_block *block, float *const *Q, float *const *M, bool bfloat16);
/* Scales all factors of a block so that their largest absolute elements become equal: the geometric mean of what
 * these elements were. The product of the factors does not change. */
void pd_kron_balance(const pd_kron_block *block, float *const *Q, bool bfloat16);
/* Preconditions the elements x of a block, in place: multiplies them by Q'Q along every dimension. x has the sizes
 * block->size.
 *
 * `other` is work memory for products that are cut into stripes (stripes.h), with the layout of x: element i behind the
 * first of x has its place at other[i]. NULL: there is none, so some products are computed by fewer threads. */
void pd_kron_precondition(const pd_kron_block *block, const pd_block_view *x, float *const *Q, float *other);
/* Return the number of multiplications and additions: of an update of a block's factors (pd_kron_multipliers and
 * pd_kron_multiply), and of preconditioning. Symmetric and triangular products count half. */
double pd_kron_update_flops(const pd_kron_block *block);
double pd_kron_precondition_flops(const pd_kron_block *block);

/* Returns whether threads can share products with this block or its factors (stripes.h). */
bool pd_kron_is_large(const pd_kron_block *block);

/* Advances the counter of steps since the last update of the factors, in float32 as the original implementation
 * does. `p` is the update probability in this step. True: the factors are updated in this step, and the counter is 0
 * again. */
bool pd_kron_counts(float *counter, double p);

#endif
