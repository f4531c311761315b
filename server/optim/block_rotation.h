/* block_rotation.h - rotates one block of a tensor into orthonormal bases of its dimensions and back, and changes the
 * basis of a block where it lies in the tensor. Pure functions; any thread; no allocations. Large products are cut into
 * stripes (stripes.h).
 *
 * A basis Q[d] of dimension d is a row-major matrix (size[d], size[d]) with a basis vector in each column. A dimension
 * without a basis has NULL there and is not rotated. */
#ifndef PD_BLOCK_ROTATION_H
#define PD_BLOCK_ROTATION_H

#include "block_products.h"

/* Writes the block to `out`, without gaps, rotated along each dimension d that has a basis: into the basis (PD_AS_IS:
 * out[.., b, ..] = sum over a of in[.., a, ..] Q[d][a, b]), or out of it (PD_TRANSPOSED). `out` may be the memory that
 * the view reads if the block's rank is at least 2 and the view has no gaps. `scratch` has room for
 * pd_block_rotate_scratch floats. */
void pd_block_rotate(float *out, const pd_block_view *view, float *const *Q, pd_turn turn, float *scratch);
int64_t pd_block_rotate_scratch(const pd_block *block, int rank);

/* Multiplies a block of `whole`, a tensor of shape `shape`, along dimension d by the matrix R, where it lies:
 * new[.., b, ..] = sum over a of old[.., a, ..] R[a, b]. `scratch` has room for as many floats as R. */
void pd_block_multiply_along(float *whole, const pd_shape *shape, const pd_block *block, int d, pd_mat R,
                             float *scratch);
/* Puts the indices of a block along dimension d into another order: new[.., b, ..] = old[.., order[b], ..]. `scratch`
 * has room for size[d]^2 floats. */
void pd_block_sort_along(float *whole, const pd_shape *shape, const pd_block *block, int d, const float *order,
                         float *scratch);

#endif
