/* graft.h - computes the direction D in which a first-order optimizer would move the weights, and norms in float32.
 * Shampoo gives its own direction the length of D (grafting, arXiv:2002.11803). G is the gradient, V the moving sum of
 * its squares. Pure functions; any thread.
 *
 *     PD_GRAFT_PLAIN     D = G
 *     PD_GRAFT_SIGN      D = sign(G), where sign(0) = 0
 *     PD_GRAFT_DIAGONAL  V <- w1 V + w2 g^2,  D = g / (sqrt(V) + epsilon) / clip      with g = G / divisor
 *     PD_GRAFT_CORRECTED V <- w1 V + w2 G^2,  D = F / (sqrt(V / correction) + epsilon), where F is a filtered gradient
 *
 * w1 and w2 multiply the old sum and the new square. They are 1 and 1 for Adagrad, beta2 and 1 - beta2 for RMSProp.
 * `divisor` is the norm of G in the normalized forms of both, else 1. `clip` limits the root mean square of D.
 * `correction` corrects the bias of V. `epsilon` keeps the denominator above 0. F is shampoo's moving average of G
 * (beta1), corrected for its bias. */
#ifndef PD_GRAFT_H
#define PD_GRAFT_H

#include <math.h>
#include <stdint.h>

#include "cpu.h"

typedef enum pd_graft_kind { PD_GRAFT_PLAIN, PD_GRAFT_SIGN, PD_GRAFT_DIAGONAL, PD_GRAFT_CORRECTED } pd_graft_kind;

/* The kind of a direction D, and the constants of its formula in one step. */
typedef struct pd_graft {
    pd_graft_kind kind;
    /* constants of the formulas above, for PD_GRAFT_DIAGONAL and PD_GRAFT_CORRECTED; `divisor` and `clip` are 1 where
     * they must have no effect */
    float w1, w2, epsilon, divisor, clip;
    float correction; /* number by which PD_GRAFT_CORRECTED divides V to correct its bias; 1: no correction */
} pd_graft;

/* Returns one element of the direction D of a first-order optimizer, from an element g of the gradient and v, the sum
 * of squared gradients after its update. If g is NaN, so is the result. */
PD_INLINE float pd_graft_direction(pd_graft_kind kind, const pd_graft *f, float g, float v)
{
    if (kind == PD_GRAFT_SIGN) return g > 0 ? 1.0f : g < 0 ? -1.0f : g;
    if (kind == PD_GRAFT_CORRECTED) return g / (sqrtf(v / f->correction) + f->epsilon);
    if (kind == PD_GRAFT_DIAGONAL) return g / f->divisor / (sqrtf(v) + f->epsilon) / f->clip;
    return g;
}

/* Updates V, the sum of squared gradients of n elements, by the gradients G. Does nothing for kinds of directions
 * without such a sum. */
void pd_graft_accumulate(float *V, const float *G, int64_t n, const pd_graft *f);
/* Writes the direction D of n elements, computed from the gradients G and the sums of their squares V. D may be G. */
void pd_graft_directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f);
/* Returns the sum of the squares of the direction D, added as in pd_squares. D itself is not stored. G are the
 * gradients, V the sums of their squares. */
double pd_graft_squares(const float *G, const float *V, int64_t n, const pd_graft *f);

/* Returns the sum of the squares of n numbers x[i]. Each square is rounded to float32, so it may overflow to infinity
 * or underflow to 0; squares are added in float64. The bits do not depend on threads. */
double pd_squares(const float *x, int64_t n);
/* Returns the sum of the squares of sign(x): the number of elements that are not 0. */
double pd_sign_squares(const float *x, int64_t n);
/* Returns the norm of a vector, computed in float32 from the sum of its squares. */
float pd_norm(double sum);

#endif
