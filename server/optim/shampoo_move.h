/* shampoo_move.h - element-wise passes of the optimizer shampoo over n contiguous elements. Pure functions; any
 * thread. */
#ifndef PD_SHAMPOO_MOVE_H
#define PD_SHAMPOO_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* The constants of the gradient filter: F <- beta1 F + gain G; D = F / correction, or with `ahead` D = (beta3 F_old
 * + rest G) / correction. F_old is F before the update. */
typedef struct shampoo_filter {
    float beta1, gain;
    bool ahead; /* D is computed with beta3 and rest */
    float beta3, rest;
    float correction;
} shampoo_filter;
void pd_shampoo_filter(float *D, float *F, const float *G, int64_t n, const shampoo_filter *filter);

/* The constants of the move of the weights:
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
    int send;           /* communication_dtype */
    bool sends_weights; /* communication_dtype rounds the weights; false: it rounds the updates */
} shampoo_move;
/* Moves n weights. M is NULL without momentum. `after` may be the same memory as `before`. P receives the change of
 * the weights. */
void pd_shampoo_move(float *after, const float *before, float *P, float *M, int64_t n, const shampoo_move *move);

#endif
