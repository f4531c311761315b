/* block_products.h - products of one block of a tensor along each of its dimensions: with itself (statistics), and with
 * a matrix for each dimension (preconditioning). For the optimizers that keep a matrix for each dimension of a block.
 * Pure functions; any thread; no allocations of their own.
 *
 * Contiguous blocks, and large blocks of matrices, are used in place; other blocks are copied to scratch memory first.
 * Every side of a block, and its number of elements, is below 2^31.
 *
 * Products of large blocks are cut into stripes, which the threads of a parallel region share (stripes.h). */
#ifndef PD_BLOCK_PRODUCTS_H
#define PD_BLOCK_PRODUCTS_H

#include <stdbool.h>

#include "linalg.h"
#include "partition.h"

/* A block of a tensor in the form in which products read it. It points into the tensor, or into scratch memory with a
 * copy of the block. */
typedef struct pd_block_view {
    float *at; /* first element of the block; most users only read the block, kron_factor.c also changes it */
    int rank;  /* number of dimensions, 1 … PD_MAX_RANK */
    int64_t size[PD_MAX_RANK];
    /* for a matrix (rank 2), the number of floats from one row to the next; not used for other ranks, whose elements
     * are contiguous */
    int64_t stride;
} pd_block_view;

/* Return how many floats of scratch memory a block needs: pd_block_view_scratch for pd_block_look,
 * pd_block_contract_scratch for pd_block_contract. */
int64_t pd_block_view_scratch(const pd_shape *shape, const pd_block *block);
int64_t pd_block_contract_scratch(const pd_shape *shape, const pd_block *block);

/* Returns whether products with this block are so large that threads share them. */
bool pd_block_is_large(const pd_block *block, int rank);

/* Returns a view of a block of `whole`, a tensor of shape `shape` that is not a scalar. A block that products cannot
 * use in place is copied to `scratch`. */
pd_block_view pd_block_look(const float *whole, const pd_shape *shape, const pd_block *block, float *scratch);

/* Updates S, the statistics of a block along dimension `dim`: S <- beta S + alpha B, where B is the block contracted
 * with itself over all other dimensions (for the rows of a matrix G, G times its transpose). S is a square matrix; its
 * side is the block's size in `dim`. S is symmetric: only its lower half is read and written. With beta = 0 the old S
 * is not read. */
void pd_block_gram(pd_mat S, float beta, float alpha, const pd_block_view *view, int dim);

/* Multiplies a block by a matrix P[d], row-major (size[d], size[d]), along each dimension d: out[.., b, ..] = sum over
 * a of in[.., a, ..] P[d][a, b].
 *
 * Writes the result to the same block of `whole`, a tensor of shape `shape`. If the rank is at least 2, `whole` may be
 * the tensor that the view reads. `scratch` has room for pd_block_contract_scratch floats.
 *
 * Calls the function `measure` for each contiguous range of the result, while it is in the cache, and returns the sum
 * of the values that `measure` returns. */
double pd_block_contract(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view,
                         float *const *P, float *scratch, double (*measure)(const float *x, int64_t n));

/* Computes C <- op(A) op(B) for whole matrices. A large product is cut into stripes. */
void pd_block_multiply(pd_mat C, pd_mat A, pd_turn a, pd_mat B, pd_turn b);

/* Calls the function `measure` for each contiguous range of a block's elements, in order, and returns the sum of the
 * results. */
double pd_block_view_sum(const pd_block_view *view, double (*measure)(const float *x, int64_t n));

#endif
