/* kron_fit.h - the updates of a block's factors in psgd_torch, for the optimizer kron (its hyperparameter dQ), and
 * preconditioning with such factors. Pure functions; any thread. Source: psgd_torch of October 2025 (PSGD,
 * arXiv:1512.04202, arXiv:2402.11858).
 *
 * A factor Q is a vector (diagonal) or a matrix: symmetric or nearly so, with QEP and QEQ any, with EQ_psgd an upper
 * triangular one in full. P = Q'Q is its preconditioner, where Q' is the transpose of Q; with QUAD4P and PRO4P the
 * factor is P itself. Blocks are not padded. An update needs products of matrices alone, but for EQ_psgd, which solves
 * triangular systems. */
#ifndef PD_KRON_FIT_H
#define PD_KRON_FIT_H

#include "kron_factor.h"

/* How factors are updated: the values of the hyperparameter dQ, in this order. PD_KRON_EQ is the update of
 * kron_factor.h, with triangular factors; the functions below do not know it. PD_KRON_EQ_PSGD is the same idea in
 * psgd_torch. */
typedef enum pd_kron_rule {
    PD_KRON_EQ,
    PD_KRON_QUAD,
    PD_KRON_QUAD4P,
    PD_KRON_PRO,
    PD_KRON_PRO4P,
    PD_KRON_QEP,
    PD_KRON_QEQ,
    PD_KRON_EQ_PSGD
} pd_kron_rule;

/* Returns whether a rule's factors are preconditioners P themselves, and not their square roots Q. */
bool pd_kron_rule_fits_p(pd_kron_rule rule);

/* Values of one update of a block's factors. */
typedef struct pd_kron_fit {
    pd_kron_rule rule;
    float rate;    /* preconditioner_lr */
    float beta;    /* betaL */
    bool balances; /* whether the factors' largest elements are made equal after the update */
    bool bfloat16; /* whether factors are rounded to bfloat16 */
} pd_kron_fit;

/* Returns how many normally distributed random numbers an update of a block's factors takes: one for each element, then
 * those with which the norms of matrices are bounded. */
int64_t pd_kron_fit_normals(const pd_kron_block *block, pd_kron_rule rule);
/* Return how many floats of scratch memory are needed: pd_kron_fit_scratch by an update, pd_kron_whiten_scratch by
 * preconditioning. */
int64_t pd_kron_fit_scratch(const pd_kron_block *block);
int64_t pd_kron_whiten_scratch(const pd_kron_block *block);
/* Computes new factors to[d] from the factors Q[d] of a block, and new smoothness numbers to_L[d] from L[d]: L[d] is
 * the size that the terms of the update had lately, by which the rate is divided.
 *
 * H is what the factors are fitted to, with damping: contiguous, of the block's size, overwritten. `normals` are the
 * random numbers of the update, also overwritten. `scratch` has room for pd_kron_fit_scratch floats. */
void pd_kron_fit_factors(const pd_kron_block *block, const pd_kron_fit *fit, float *H, float *normals, float *const *Q,
                         float *const *L, float *const *to, float *const *to_L, float *scratch);
/* Preconditions the elements x of a block, in place: multiplies them by P along every dimension. `scratch` has room for
 * pd_kron_whiten_scratch floats. */
void pd_kron_whiten(const pd_kron_block *block, pd_kron_rule rule, const pd_block_view *x, float *const *Q,
                    float *scratch);
/* Return the number of multiplications and additions for a block: pd_kron_fit_flops of an update of its factors,
 * pd_kron_whiten_flops of preconditioning. Symmetric products count half. */
double pd_kron_fit_flops(const pd_kron_block *block, pd_kron_rule rule);
double pd_kron_whiten_flops(const pd_kron_block *block, pd_kron_rule rule);
/* Returns whether products with this block or its factors are so large that threads share them (stripes.h). */
bool pd_kron_fit_is_large(const pd_kron_block *block);

#endif
