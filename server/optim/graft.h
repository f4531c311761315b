/* graft.h - directions of first-order methods that lend their length to another direction (arXiv:2002.11803), and
 * norms as float32 arithmetic has them. Pure; any thread.
 *
 *     PD_GRAFT_PLAIN     D = G
 *     PD_GRAFT_SIGN      D = sign(G), 0 of 0
 *     PD_GRAFT_DIAGONAL  V <- w1 V + w2 g^2,  D = g / (sqrt(V) + epsilon) / clip      with g = G / divisor
 *     PD_GRAFT_CORRECTED V <- w1 V + w2 G^2,  D = F / (sqrt(V / correction) + epsilon) of another gradient F, a filtered one
 *
 * Adagrad is w1 = w2 = 1, RMSProp w1 = beta2 and w2 = 1 - beta2; the normalized forms divide by the gradient's
 * norm. */
#ifndef PD_GRAFT_H
#define PD_GRAFT_H

#include <math.h>
#include <stdint.h>

#include "clones.h"

typedef enum pd_graft_kind { PD_GRAFT_PLAIN, PD_GRAFT_SIGN, PD_GRAFT_DIAGONAL, PD_GRAFT_CORRECTED } pd_graft_kind;

typedef struct pd_graft {
    pd_graft_kind kind;
    float w1, w2, epsilon, divisor, clip;       /* of those with a V; divisor and clip are 1 where there is none */
    float correction;                           /* PD_GRAFT_CORRECTED; 1: none */
} pd_graft;

/* One element of D; `v` after its update. NaN and infinities pass through. */
PD_INLINE float pd_graft_direction(pd_graft_kind kind, const pd_graft *f, float g, float v)
{
    if (kind == PD_GRAFT_SIGN) return g > 0 ? 1.0f : g < 0 ? -1.0f : g;
    if (kind == PD_GRAFT_CORRECTED) return g / (sqrtf(v / f->correction) + f->epsilon);
    if (kind == PD_GRAFT_DIAGONAL) return g / f->divisor / (sqrtf(v) + f->epsilon) / f->clip;
    return g;
}

/* Updates V of those that have one; else V is not read. */
void pd_graft_accumulate(float *V, const float *G, int64_t n, const pd_graft *f);
/* D itself, which may take the place of G. */
void pd_graft_directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f);
/* Squares of D added up, as pd_squares does. */
double pd_graft_squares(const float *G, const float *V, int64_t n, const pd_graft *f);

/* Sum of x[i]^2, each square rounded to float32 and so infinite or 0 where that overflows or underflows, but added
 * in float64: the bits do not depend on threads. */
double pd_squares(const float *x, int64_t n);
/* The same of sign(x): how many are not 0. */
double pd_sign_squares(const float *x, int64_t n);
/* The float32 norm that such a sum stands for. */
float  pd_norm(double squares);

#endif
