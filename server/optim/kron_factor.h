/* kron_factor.h - the arithmetic of one block of kron: how its factors change, and what they do to its elements.
 * Pure; any thread. Source: distributed_kron 1.0.0 (PSGD Kron, arXiv:1512.04202, arXiv:2211.04422). */
#ifndef PD_KRON_FACTOR_H
#define PD_KRON_FACTOR_H

#include "block_products.h"

/* One block and its factors. */
typedef struct pd_kron_block {
    int     rank;
    bool    diagonal[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK];          /* of the elements that there are */
    /* with the zeros behind them that the update of the factors takes for elements, too */
    int64_t full[PD_MAX_RANK];
    /* of a factor in memory, at least `full`: a diagonal of that many, or a matrix with rows of that many, upper
     * triangular with zeros below its diagonal */
    int64_t side[PD_MAX_RANK];
} pd_kron_block;

/* Lower bound of a symmetric matrix's largest absolute eigenvalue, at least 1/sqrt(2) of it where none is
 * negative. Reads the lower half of S, and leaves it divided by its largest absolute element. Not positive (NaN,
 * or no element but 0): gives that element. `scratch`: 3 floats a row. */
float pd_kron_norm_bound(pd_mat S, float *scratch);

/* What is done to a block along a dimension with its factor Q. */
typedef enum pd_kron_deed {
    PD_KRON_APPLY,                      /* y[..b..] = sum over a of Q[b,a] x[..a..] */
    PD_KRON_APPLY_TRANSPOSED,           /* y[..b..] = sum over a of Q[a,b] x[..a..] */
    PD_KRON_SOLVE_TRANSPOSED,           /* undoes the one before */
} pd_kron_deed;

/* Does it in place. `side`: floats from one row of Q to the next, where it is not diagonal. */
void pd_kron_along(const pd_block_view *x, int dim, const float *Q, bool diagonal, int64_t side, pd_kron_deed deed);

/* Returns the floats of factor d in memory. */
int64_t pd_kron_factor_floats(const pd_kron_block *block, int d);
/* Return the scratch memory of an update of the factors, in floats: of the arithmetic alone; of a task, with the
 * probe and the padded momentum; of a phase, with the momentum and the multipliers too. */
int64_t pd_kron_update_scratch(const pd_kron_block *block);
int64_t pd_kron_task_scratch(const pd_kron_block *block);
int64_t pd_kron_phase_scratch(const pd_kron_block *block);
/* How the factors are to change: M[d], of the form of Q[d], such that the new factor is M[d] Q[d] where it is
 * triangular, and Q[d] + M[d] Q[d], element by element, where it is diagonal: Q times 1.1 lies between two
 * bfloat16 numbers for one Q in ten, and 1 + M, rounded, would choose where upstream's sum does not. H: the damped
 * momentum; V: the probe; both dense, of the sizes block->full, and used up. All factors are those before the
 * update. */
void pd_kron_multipliers(const pd_kron_block *block, float *H, float *V, float *const *Q, float rate, float *const *M, float *scratch);
/* The new factors in Q, rounded to bfloat16 where that is wanted. */
void pd_kron_multiply(const pd_kron_block *block, float *const *Q, float *const *M, bool bfloat16);
/* Brings the largest absolute elements of all factors to their geometric mean; the product of the factors stays. */
void pd_kron_balance(const pd_kron_block *block, float *const *Q, bool bfloat16);
/* Multiplies the block's elements by Q'Q along every dimension, in place; x has the sizes block->size. */
void pd_kron_precondition(const pd_kron_block *block, const pd_block_view *x, float *const *Q);
/* Multiplications and additions of all that: an update's (multipliers and multiply), and preconditioning's.
 * Symmetric and triangular products count half. */
double pd_kron_update_flops(const pd_kron_block *block);
double pd_kron_precondition_flops(const pd_kron_block *block);

/* One step of the counter, in float32 as upstream's; `p`: the probability in this step. True: now, and the counter
 * is 0 again. */
bool pd_kron_counts(float *counter, double p);

#endif
