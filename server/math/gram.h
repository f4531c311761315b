/* gram.h - dot products of a few short vectors with each other. Pure; any thread. */
#ifndef PD_GRAM_H
#define PD_GRAM_H

/* Vectors at a time, elements of each, and the dot products of all pairs: that of vectors i <= j is number PD_GRAM_AT(i, j). */
enum { PD_GRAM_VECTORS = 8, PD_GRAM_BLOCK = 512, PD_GRAM_DOTS = PD_GRAM_VECTORS * (PD_GRAM_VECTORS + 1) / 2 };
#define PD_GRAM_AT(i, j) ((j) * ((j) + 1) / 2 + (i))

/* dots[...] += the dot products of x[0] ... x[k - 1], 1 <= k <= PD_GRAM_VECTORS, PD_GRAM_BLOCK elements each at multiples of 64 bytes, all of them values of float32, whose products are
 * exact in float64. Summed in eight lanes that are added pairwise: bits are those of the pair, whatever k and the others are. */
void pd_gram_add(double *dots, const double *const *x, int k);

#endif
