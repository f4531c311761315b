/* block_codec.h - the quantized element types int8 and int4 (pd_dtype): encodes float32 vectors in blocks, and decodes
 * and sums them. Client and server share it. Pure functions; any thread. Every function gives the same bits on every
 * CPU.
 *
 * A piece is a vector of n elements in blocks of PD_BLOCK elements from its first one on; the last block may be short.
 * Its bytes (pd_dtype_bytes) are first a scale for each block, a float32, then the codes: a byte for each element
 * (int8), or half a byte (int4): element 2k in the lower half of byte k, element 2k + 1 in the upper half, both as
 * two's complement. If n is odd, the last half is 0.
 *
 * With the largest code Q (127 of int8, 7 of int4), all in float32, of a block x:
 *
 *     scale = max |x| / Q
 *     code  = x / scale, rounded to nearest even, limited to -Q ... Q; 0 if the scale is 0
 *     value = code * scale
 *
 * If an element of a block is infinite or NaN, its scale is NaN and its codes are 0, so all its values are NaN.
 * Decoding takes any scale and any code, also those that encoding does not make. */
#ifndef PD_BLOCK_CODEC_H
#define PD_BLOCK_CODEC_H

#include "paramd/tensor.h"

/* Encodes n elements of x as one piece of type `dtype` at `piece`, which has pd_dtype_bytes(dtype, n) bytes, is aligned
 * as a float, and does not overlap x. */
void pd_blocks_encode(void *piece, pd_dtype dtype, const float *x, int64_t n);

/* Writes the values of elements [first, first + n) of a piece of `of` elements to x. */
void pd_blocks_decode(float *x, pd_dtype dtype, const void *piece, int64_t of, int64_t first, int64_t n);

/* Adds the same elements, times `weight`, to the sum `acc`: value * weight is rounded, and so is its sum with acc[i].
 * With `set`, the old acc does not count. */
void pd_blocks_add(float *acc, pd_dtype dtype, const void *piece, int64_t of, int64_t first, int64_t n, float weight,
                   bool set);

/* Computes what a piece of n elements lacks of the vector x that was encoded: rest[i] = x[i] - value, rounded. Elements
 * for which that is not finite stay as they are in `rest`. */
void pd_blocks_rest(float *rest, const float *x, pd_dtype dtype, const void *piece, int64_t n);

#endif
