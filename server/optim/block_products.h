/* block_products.h - products of one block of a tensor along each of its dimensions: with itself (statistics) and
 * with a matrix for each dimension (preconditioning). Pure; any thread; allocates nothing. Shared by the
 * optimizers that keep Kronecker factors.
 *
 * Blocks that lie together in memory, and large blocks of matrices, are used where they lie; others are gathered
 * first. Every side, and the elements of a block, are below 2^31. */
#ifndef PD_BLOCK_PRODUCTS_H
#define PD_BLOCK_PRODUCTS_H

#include "linalg.h"
#include "partition.h"

/* A block as products read it. Borrows the tensor, or the scratch memory that it was gathered into. */
typedef struct pd_block_view {
    float  *at;                     /* read only */
    int     rank;                   /* 1 … PD_MAX_RANK */
    int64_t size[PD_MAX_RANK];
    int64_t stride;                 /* rank 2: floats from one row to the next; else the block is dense */
} pd_block_view;

/* Floats of scratch memory that looking at a block, and contracting it, take. */
int64_t pd_block_view_scratch(const pd_shape *shape, const pd_block *block);
int64_t pd_block_contract_scratch(const pd_shape *shape, const pd_block *block);

/* The block of `whole`, a tensor of `shape` (rank >= 1). */
pd_block_view pd_block_look(const float *whole, const pd_shape *shape, const pd_block *block, float *scratch);

/* S <- beta S + alpha times the block contracted with itself over all dimensions but `dim`; S has that dimension's
 * side. Symmetric: only its lower half is read and written. With beta = 0 what it held is not read. */
void pd_block_gram(pd_mat S, float beta, float alpha, const pd_block_view *view, int dim);

/* Multiplies the block by P[d], row-major (size[d], size[d]), along each dimension d: out[.., b, ..] = sum over a
 * of in[.., a, ..] P[d][a, b]. The result goes to the same block of `whole`, a tensor of the same shape; with two
 * dimensions or more that may be what the view looks at. Gives the sum of what `measure` says of it while it is at
 * hand. */
double pd_block_contract(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view, float *const *P, float *scratch,
                         double (*measure)(const float *x, int64_t n));

/* Sum of what `measure` gives of the block's runs of elements that lie together, in order. */
double pd_block_view_sum(const pd_block_view *view, double (*measure)(const float *x, int64_t n));

#endif
