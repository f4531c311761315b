/* shampoo_move.h - passes of shampoo over n elements that are contiguous. Pure; any thread. */
#ifndef PD_SHAMPOO_MOVE_H
#define PD_SHAMPOO_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* F <- beta1 F + gain G;  D = (what is left of G, beta3 F_old + rest G; without `ahead`: F) / correction */
typedef struct shampoo_filter {
    float beta1, gain;
    bool  ahead;                    /* beta3 and rest are in use */
    float beta3, rest;
    float correction;
} shampoo_filter;
void pd_shampoo_filter(float *D, float *F, const float *G, int64_t n, const shampoo_filter *filter);

/* P <- P length + decay W;  M <- momentum M + gain P;  P <- what momentum makes of it;  U = rate P, rounded;
 * after = before + U, rounded */
typedef struct shampoo_move {
    float length;
    bool  decays;
    float decay;
    bool  has_momentum, nesterov;
    float momentum, gain;
    float rate;                     /* minus the learning rate */
    int   send;                     /* communication_dtype */
    bool  sends_weights;            /* it rounds the weights, else the updates */
} shampoo_move;
/* M: NULL without momentum. After may be before. P becomes what was added to the weights. */
void pd_shampoo_move(float *after, const float *before, float *P, float *M, int64_t n, const shampoo_move *move);

#endif
