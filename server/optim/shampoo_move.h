/* shampoo_move.h - element-wise passes of the optimizer shampoo over n contiguous elements: filtering the gradient,
 * momentum, and the change of the weights. Pure functions; any thread. */
#ifndef PD_SHAMPOO_MOVE_H
#define PD_SHAMPOO_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* The constants with which a gradient G is filtered. The filtered gradient F becomes beta1 F + gain G, and the
 * direction is D = F / correction. With `ahead` it is D = (beta3 F_old + rest G) / correction, where F_old is F before
 * the update. */
typedef struct shampoo_filter {
    float beta1, gain;
    bool ahead; /* whether the direction D is computed with beta3 and rest */
    float beta3, rest;
    float correction;
} shampoo_filter;
void pd_shampoo_filter(float *D, float *F, const float *G, int64_t n, const shampoo_filter *filter);

/* The constants with which a step moves the weights W along the direction P, with momentum M:
 *
 *     P <- P length + decay W
 *     M <- momentum M + gain P
 *     P <- M, or gain P + momentum M with Nesterov
 *     U = rate P, rounded
 *     after = before + U, rounded */
typedef struct shampoo_move {
    float length;
    bool decays;
    float decay;
    bool has_momentum, nesterov;
    float momentum, gain;
    float rate;         /* minus the learning rate */
    int send;           /* communication_dtype: the type that weights or their changes are rounded to */
    bool sends_weights; /* whether the new weights are rounded to communication_dtype; false: their changes are */
} shampoo_move;
/* Moves n weights along the direction P. The momentum M is NULL if there is none. `after` may be the same memory as
 * `before`. P receives the change of the weights. */
void pd_shampoo_move(float *after, const float *before, float *P, float *M, int64_t n, const shampoo_move *move);

#endif
