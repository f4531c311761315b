/* block_products.h - products of one block of a tensor along each of its dimensions: with itself (statistics), and with
 * a matrix for each dimension (preconditioning). Pure; any thread; allocates nothing. Shared by the optimizers that
 * keep Kronecker factors.
 * Contiguous blocks, and large blocks of matrices, are used in place; other blocks are copied to scratch memory first.
 * Every side of a block, and its number of elements, is below 2^31.
 *
 * Products of large blocks are cut into stripes, which the threads of a parallel region share (stripes.h). */
#ifndef PD_BLOCK_PRODUCTS_H
#define PD_BLOCK_PRODUCTS_H

#include <stdbool.h>

#include "linalg.h"
#include "partition.h"

/* A block in the form in which products read it. Points into the tensor, or into the scratch memory that holds a
 * copy. */
typedef struct pd_block_view {
    float *at; /* read only */
    int rank;  /* 1 … PD_MAX_RANK */
    int64_t size[PD_MAX_RANK];
    int64_t stride; /* rank 2: number of floats from one row to the next. Other ranks: unused, the block is dense */
} pd_block_view;

/* Return how many floats of scratch memory pd_block_look and pd_block_contract need. */
int64_t pd_block_view_scratch(const pd_shape *shape, const pd_block *block);
int64_t pd_block_contract_scratch(const pd_shape *shape, const pd_block *block);

/* Returns whether threads can share products with this block. */
bool pd_block_is_large(const pd_block *block, int rank);

/* Returns a view of a block of `whole`, a tensor of `shape` (rank >= 1). A block that is not used in place is copied
 * to `scratch`. */
pd_block_view pd_block_look(const float *whole, const pd_shape *shape, const pd_block *block, float *scratch);

/* Computes S <- beta S + alpha times the block contracted with itself over all dimensions except `dim`. S has the side
 * of that dimension. S is symmetric: only its lower half is read and written. With beta = 0 the old S is not read. */
void pd_block_gram(pd_mat S, float beta, float alpha, const pd_block_view *view, int dim);

/* Multiplies the block by a matrix P[d], row-major (size[d], size[d]), along each dimension d: out[.., b, ..] = sum
 * over a of in[.., a, ..] P[d][a, b].
 *
 * The result is written to the same block of `whole`, a tensor of the same shape. If the rank is at least 2, `whole`
 * may be the tensor that the view reads.
 *
 * Returns the sum of `measure` over the result, which is computed while the result is in the cache. */
double pd_block_contract(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view,
                         float *const *P, float *scratch, double (*measure)(const float *x, int64_t n));

/* Calls `measure` for each contiguous range of the block's elements, in order, and returns the sum of the results. */
double pd_block_view_sum(const pd_block_view *view, double (*measure)(const float *x, int64_t n));

#endif
