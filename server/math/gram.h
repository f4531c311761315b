/* gram.h - computes the dot products of a few short vectors with each other. Pure functions; any thread. */
#ifndef PD_GRAM_H
#define PD_GRAM_H

#include <stdalign.h>

/* A call of pd_gram_add takes at most PD_GRAM_VECTORS vectors, and PD_GRAM_BLOCK elements of each. The dot products of
 * all pairs are an array of PD_GRAM_DOTS numbers: the dot product of vectors i <= j has the index PD_GRAM_AT(i, j). */
enum { PD_GRAM_VECTORS = 8, PD_GRAM_BLOCK = 128, PD_GRAM_DOTS = PD_GRAM_VECTORS * (PD_GRAM_VECTORS + 1) / 2 };
#define PD_GRAM_AT(i, j) ((j) * ((j) + 1) / 2 + (i))

/* The dot products summed so far, each as eight lanes. Initialize with zeros. */
typedef struct pd_gram {
    alignas(64) double lane[PD_GRAM_DOTS][8];
} pd_gram;

/* Adds the dot products of all pairs among the vectors x[0] ... x[k - 1], 1 <= k <= PD_GRAM_VECTORS, over PD_GRAM_BLOCK
 * elements. The vectors begin at multiples of 64 bytes. All elements must be values of float32: their products are
 * exact in float64. */
void pd_gram_add(pd_gram *gram, const double *const *x, int k);
/* Writes the dot products summed so far to `dots`: adds the eight lanes of each pairwise. The bits of a dot product
 * depend on its two vectors alone, not on k or on the other vectors. */
void pd_gram_fold(const pd_gram *gram, double dots[PD_GRAM_DOTS]);

#endif
