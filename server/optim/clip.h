/* clip.h - clipping by the global norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent neural
 * networks", section 3.2), as T5X does it (adafactor.py, apply_gradient): the gradients G of several parameters are
 * scaled together so that the norm of all of them does not exceed a limit T.
 *
 *     norm  = sqrt(sum over the parameters of the sum of G²)
 *     scale = T min(1/T, 1/norm)              in float32
 *     G     = scale G
 *
 * A gradient is cut into ranges of PD_CLIP_RANGE elements (pd_clip_piece), beginning at its first element. The squares
 * of a range are summed in float64, and the sums of the ranges are added without rounding (exact_sum.h). So the bits
 * depend neither on the number of threads, nor on the order of the ranges, nor on which daemon has summed which of
 * them. Pure functions; they run on the calling thread and its OpenMP team. */
#ifndef PD_CLIP_H
#define PD_CLIP_H

#include "exact_sum.h"
#include "paramd/tensor.h"

#include <stddef.h>

enum { PD_CLIP_RANGE = 1 << 16 };

/* Least and largest value that the limit of the norm may have. A limit between them, and its inverse, are normal
 * float32 numbers: neither subnormal nor infinite. */
#define PD_CLIP_LEAST 1e-30
#define PD_CLIP_MOST 1e30

/* A range of the elements of a gradient. */
typedef struct pd_clip_piece {
    const float *from; /* the elements of the gradient */
    float *to;         /* output of pd_clip_apply: the scaled elements; may be `from` */
    int64_t n;         /* number of elements, at most PD_CLIP_RANGE */
    double squares;    /* output of pd_clip_sum: the sum of the elements' squares */
} pd_clip_piece;

/* Sums the squares of each of n ranges of gradients, and adds these n sums to `sum`. */
void pd_clip_sum(pd_clip_piece *pieces, size_t n, pd_exact_sum *sum, int threads);
/* Scales n ranges of gradients: each element of `to` becomes `scale` times the element of `from`. */
void pd_clip_apply(const pd_clip_piece *pieces, size_t n, float scale, int threads);

/* Returns the factor by which to scale gradients whose sum of squares is `squares`, so that their norm does not exceed
 * the limit:
 *
 *   - The norm is within the limit: the factor is 1, up to rounding.
 *   - An element is NaN: the factor is NaN, and all elements become NaN.
 *   - An element is infinite, or the sum exceeds float32: the factor is 0. An infinite element then becomes NaN. */
float pd_clip_scale(double limit, double squares);
/* Returns whether the norm of gradients, the square root of `squares`, exceeds the limit. */
bool pd_clip_exceeds(double limit, double squares);

#endif
