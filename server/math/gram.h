/* gram.h - dot products of a few short vectors with each other. Pure; any thread. */
#ifndef PD_GRAM_H
#define PD_GRAM_H

#include <stdalign.h>

/* Vectors at a time, elements of each, and the dot products of all pairs: that of vectors i <= j is number
 * PD_GRAM_AT(i, j). */
enum { PD_GRAM_VECTORS = 8, PD_GRAM_BLOCK = 128, PD_GRAM_DOTS = PD_GRAM_VECTORS * (PD_GRAM_VECTORS + 1) / 2 };
#define PD_GRAM_AT(i, j) ((j) * ((j) + 1) / 2 + (i))

/* Sums under way, in eight lanes each. Begins zeroed. */
typedef struct pd_gram {
    alignas(64) double lane[PD_GRAM_DOTS][8];
} pd_gram;

/* Adds the dot products of x[0] ... x[k - 1], 1 <= k <= PD_GRAM_VECTORS, PD_GRAM_BLOCK elements each at multiples
 * of 64 bytes, all of them values of float32, whose products are exact in float64. */
void pd_gram_add(pd_gram *gram, const double *const *x, int k);
/* What that has come to, the lanes added pairwise. The bits of a dot product are those of its two vectors,
 * whatever k and the others are. */
void pd_gram_fold(const pd_gram *gram, double dots[PD_GRAM_DOTS]);

#endif
