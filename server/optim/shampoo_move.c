/* shampoo_move.c - the element-wise passes of the optimizer shampoo: filtered gradient, momentum and weights. */
#include "convert.h"
#include "shampoo_hypers.h"
#include "shampoo_move.h"

/* ---- filter ---- */

PD_INLINE void filter_pass(float *restrict D, float *restrict F, const float *G, int64_t n,
                           const shampoo_filter *filter, bool ahead)
{
    const shampoo_filter f = *filter;

    for (int64_t i = 0; i < n; i++) {
        float g = G[i], next = f.beta1 * F[i] + f.gain * g;
        D[i] = (ahead ? f.beta3 * F[i] + f.rest * g : next) / f.correction;
        F[i] = next;
    }
}

PD_CLONES(void, filter_plain, (float *D, float *F, const float *G, int64_t n, const shampoo_filter *f), (D, F, G, n, f))
{
    filter_pass(D, F, G, n, f, false);
}
PD_CLONES(void, filter_ahead, (float *D, float *F, const float *G, int64_t n, const shampoo_filter *f), (D, F, G, n, f))
{
    filter_pass(D, F, G, n, f, true);
}

void pd_shampoo_filter(float *D, float *F, const float *G, int64_t n, const shampoo_filter *filter)
{
    (filter->ahead ? filter_ahead : filter_plain)(D, F, G, n, filter);
}

/* ---- the search direction P with decay and momentum ---- */

typedef enum mass { NO_MOMENTUM, HEAVY_BALL, NESTEROV_FORM } mass;

/* Adds weight decay and momentum to the direction P. Callers pass `kind` and `decays` as constants, so the compiled
 * loop has no branches. */
PD_INLINE void search_pass(float *restrict P, float *restrict M, const float *W, int64_t n, const shampoo_move *move,
                           mass kind, bool decays)
{
    const shampoo_move m = *move;

    for (int64_t i = 0; i < n; i++) {
        float p = P[i] * m.length;
        if (decays) p = p + m.decay * W[i];
        if (kind != NO_MOMENTUM) {
            float next = m.momentum * M[i] + m.gain * p;
            p = kind == NESTEROV_FORM ? m.gain * p + m.momentum * next : next;
            M[i] = next;
        }
        P[i] = p;
    }
}

#define SEARCH(name, kind, decays)                                                                                     \
    PD_CLONES(void, name, (float *P, float *M, const float *W, int64_t n, const shampoo_move *m), (P, M, W, n, m))     \
    {                                                                                                                  \
        search_pass(P, M, W, n, m, kind, decays);                                                                      \
    }
SEARCH(search, NO_MOMENTUM, false)
SEARCH(search_decay, NO_MOMENTUM, true)
SEARCH(search_heavy, HEAVY_BALL, false)
SEARCH(search_heavy_decay, HEAVY_BALL, true)
SEARCH(search_nesterov, NESTEROV_FORM, false)
SEARCH(search_nesterov_decay, NESTEROV_FORM, true)

/* ---- the move of the weights ---- */

PD_INLINE float rounded(float x, int send)
{
    if (send == SEND_FLOAT16) return pd_f32_from_f16(pd_f16_from_f32(x));
    if (send == SEND_BFLOAT16) return pd_f32_from_bf16(pd_bf16_from_f32(x));
    return x;
}

PD_INLINE void add_pass(float *after, const float *before, float *restrict P, int64_t n, float rate, int send,
                        bool weights)
{
/* The new weights `after` and the old ones `before` are the same memory or do not overlap, so the compiler may
 * vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float w = before[i], u = P[i] * rate;
        float sum = weights ? rounded(w + u, send) : w + rounded(u, send);
        P[i] = weights ? sum - w : rounded(u, send);
        after[i] = sum;
    }
}

#define ADD(name, send, weights)                                                                                       \
    PD_CLONES(void, name, (float *after, const float *before, float *P, int64_t n, float rate),                        \
              (after, before, P, n, rate))                                                                             \
    {                                                                                                                  \
        add_pass(after, before, P, n, rate, send, weights);                                                            \
    }
ADD(add, SEND_FLOAT32, false)
ADD(add_float16, SEND_FLOAT16, false)
ADD(add_bfloat16, SEND_BFLOAT16, false)
ADD(add_to_float16, SEND_FLOAT16, true)
ADD(add_to_bfloat16, SEND_BFLOAT16, true)

void pd_shampoo_move(float *after, const float *before, float *P, float *M, int64_t n, const shampoo_move *move)
{
    static void (*const searches[3][2])(float *P, float *M, const float *W, int64_t n, const shampoo_move *m) = {
        [NO_MOMENTUM] = { search, search_decay },
        [HEAVY_BALL] = { search_heavy, search_heavy_decay },
        [NESTEROV_FORM] = { search_nesterov, search_nesterov_decay },
    };
    static void (*const adds[4][2])(float *after, const float *before, float *P, int64_t n, float rate) = {
        [SEND_FLOAT32] = { add, add },
        [SEND_FLOAT16] = { add_float16, add_to_float16 },
        [SEND_BFLOAT16] = { add_bfloat16, add_to_bfloat16 },
        [SEND_DEFAULT] = { add, add },
    };

    searches[!move->has_momentum ? NO_MOMENTUM
             : move->nesterov    ? NESTEROV_FORM
                                 : HEAVY_BALL][move->decays](P, M, before, n, move);
    adds[move->send][move->sends_weights](after, before, P, n, move->rate);
}
