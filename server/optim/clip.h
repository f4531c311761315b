/* clip.h - clipping by the global norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent
 * neural networks", section 3.2), as T5X does it (adafactor.py, apply_gradient): the gradients of several
 * parameters are scaled together so that the norm of all of them does not exceed a limit.
 *
 *     norm  = sqrt(sum over the parameters of the sum of G²)
 *     scale = T min(1/T, 1/norm)              in float32; T the limit
 *     G     = scale G
 *
 * A gradient is cut into pieces of at most PD_CLIP_RANGE elements from its first one on, and the pieces' sums are
 * added in float64, piece by piece and parameter by parameter: the bits do not depend on threads, nor on how many
 * pieces a call gets. Pure; the caller's thread and its team. */
#ifndef PD_CLIP_H
#define PD_CLIP_H

#include "paramd/tensor.h"

#include <stddef.h>

enum { PD_CLIP_RANGE = 1 << 16 };

/* Limits: neither they nor their inverses leave float32's range. */
#define PD_CLIP_LEAST 1e-30
#define PD_CLIP_MOST  1e30

typedef struct pd_clip_piece {
    const float *from;
    float       *to;                    /* for pd_clip_apply; may be `from` */
    int64_t      n;                     /* elements, at most PD_CLIP_RANGE */
    double       squares;               /* out, of pd_clip_sum: sum of their squares */
} pd_clip_piece;

/* Sums up n pieces, each by itself, and gives `sofar` with these added in their order. */
double pd_clip_sum(pd_clip_piece *pieces, size_t n, double sofar, int threads);
/* to = scale from, of n pieces. */
void   pd_clip_apply(const pd_clip_piece *pieces, size_t n, float scale, int threads);

/* What gradients whose squares sum up to this are multiplied by. 1 only up to rounding where the norm is within
 * the limit. Of gradients that are not finite: NaN where one is NaN (all become NaN), 0 where one is infinite
 * (that one becomes NaN). 0 also where the sum leaves float32. */
float  pd_clip_scale(double limit, double squares);
/* The norm exceeds the limit. */
bool   pd_clip_exceeds(double limit, double squares);

#endif
