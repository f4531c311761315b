/* kron_factor.h - the arithmetic of one block of the optimizer kron: the update of its factors, and preconditioning
 * with them. Pure functions; any thread. Source: distributed_kron 1.0.0 (PSGD Kron, arXiv:1512.04202,
 * arXiv:2211.04422). */
#ifndef PD_KRON_FACTOR_H
#define PD_KRON_FACTOR_H

#include "block_products.h"

/* The sizes of one block of a parameter, and of its factors: one factor for each dimension. */
typedef struct pd_kron_block {
    int rank;
    bool diagonal[PD_MAX_RANK]; /* whether the factor of each dimension is diagonal; false: triangular */
    int64_t size[PD_MAX_RANK];  /* size of the block in each dimension, without padding */
    /* Size of the block in each dimension, with padding. The update of the factors treats the zeros of the padding as
     * elements, too. */
    int64_t full[PD_MAX_RANK];
    /* Size of each dimension's factor in memory, at least the padded size `full`. A diagonal factor has `side` numbers.
     * A triangular one has `side` rows of `side` numbers, with zeros below its diagonal. */
    int64_t side[PD_MAX_RANK];
} pd_kron_block;

/* Returns a lower bound of the largest absolute eigenvalue of a symmetric matrix S. If no eigenvalue is negative, the
 * bound is at least 1/sqrt(2) of the largest eigenvalue. `scratch` is memory for 3 floats for each row.
 *
 * Reads only the lower half of S, and changes it: divides it by its largest absolute element. If this element is NaN or
 * 0, returns it and leaves S unchanged. */
float pd_kron_norm_bound(pd_mat S, float *scratch);

/* An operation with a block's factor Q along one dimension of a tensor x. */
typedef enum pd_kron_operation {
    PD_KRON_APPLY,            /* multiplies x by Q: y[..b..] = sum over a of Q[b,a] x[..a..] */
    PD_KRON_APPLY_TRANSPOSED, /* multiplies x by the transpose of Q: y[..b..] = sum over a of Q[a,b] x[..a..] */
    PD_KRON_SOLVE_TRANSPOSED, /* multiplies x by the inverse of the transpose of Q */
} pd_kron_operation;

/* Applies an operation with the factor Q to the tensor x, in place, along dimension `dim`. `side` is the number of
 * floats from one row of Q to the next, if Q is not diagonal. */
void pd_kron_along(const pd_block_view *x, int dim, const float *Q, bool diagonal, int64_t side,
                   pd_kron_operation operation);

/* Computes for each index of dimension `dim` of the tensor x the sum of the squares of all elements that have this
 * index. */
void pd_kron_squares_along(float *sum, const pd_block_view *x, int dim);

/* Returns how many floats a block's factor for dimension d takes in memory. */
int64_t pd_kron_factor_floats(const pd_kron_block *block, int d);
/* Return how many floats of scratch memory an update of a block's factors needs:
 *
 *   - pd_kron_update_scratch: for the arithmetic alone.
 *   - pd_kron_task_scratch: for an update by a task of the preconditioner pool, with the random probe and the
 *     padded momentum.
 *   - pd_kron_phase_scratch: for an update within the step, which also needs memory for the block's momentum and for
 *     the multipliers of the factors. */
int64_t pd_kron_update_scratch(const pd_kron_block *block);
int64_t pd_kron_task_scratch(const pd_kron_block *block);
int64_t pd_kron_phase_scratch(const pd_kron_block *block);
/* Computes how an update changes the factors Q of a block: a multiplier M[d] for each factor Q[d], triangular or
 * diagonal as Q[d] is. The new factor is M[d] Q[d] if it is triangular. If it is diagonal, it is Q[d] + M[d] Q[d],
 * element by element.
 *
 * The two forms round to bfloat16 as the original implementation does: for a diagonal factor, rounding 1 + M first
 * would often give another number.
 *
 * H is the block's momentum with a little noise (damping), V the probe, which is random numbers. Both are contiguous,
 * of the padded sizes block->full, and are overwritten. `rate` is the learning rate of the factors (preconditioner_lr).
 * `scratch` has room for pd_kron_update_scratch floats. */
void pd_kron_multipliers(const pd_kron_block *block, float *H, float *V, float *const *Q, float rate, float *const *M,
                         float *scratch);
/* Updates the factors Q of a block by the multipliers M that pd_kron_multipliers has computed. Then rounds the factors
 * to bfloat16 if `bfloat16` is set. */
void pd_kron_multiply(const pd_kron_block *block, float *const *Q, float *const *M, bool bfloat16);
/* Scales all factors of a block so that their largest absolute elements become equal: the geometric mean of what these
 * elements were before. The product of the factors does not change. If `bfloat16` is set, rounds the factors to
 * bfloat16. */
void pd_kron_balance(const pd_kron_block *block, float *const *Q, bool bfloat16);
/* Preconditions the elements x of a block, in place: multiplies them by Q'Q along every dimension, where Q is the
 * dimension's factor and Q' its transpose. x has the sizes block->size, without padding.
 *
 * `other` is work memory for products that threads share (stripes.h). It has the layout of x: element i after the first
 * of x has its place at other[i]. NULL: there is none, so fewer threads share some products. Only blocks for which
 * pd_kron_needs_other returns true use `other`. */
void pd_kron_precondition(const pd_kron_block *block, const pd_block_view *x, float *const *Q, float *other);
/* Returns whether pd_kron_precondition uses its argument `other` for this block. */
bool pd_kron_needs_other(const pd_kron_block *block);
/* Return the number of multiplications and additions for a block: pd_kron_update_flops of an update of its factors
 * (pd_kron_multipliers and pd_kron_multiply), pd_kron_precondition_flops of preconditioning. Symmetric and triangular
 * products count half. */
double pd_kron_update_flops(const pd_kron_block *block);
double pd_kron_precondition_flops(const pd_kron_block *block);

/* Returns whether products with this block or its factors are so large that threads share them (stripes.h). */
bool pd_kron_is_large(const pd_kron_block *block);

/* Advances the counter of steps since the last update of the factors, in float32 as the original implementation does.
 * `p` is the update probability in this step: there is an update every 1/p steps. Returns true if the factors are to be
 * updated in this step; the counter is then 0 again. */
bool pd_kron_counts(float *counter, double p);

#endif
