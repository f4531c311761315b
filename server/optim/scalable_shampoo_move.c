/* scalable_shampoo_move.c - the element-wise pass of scalable_shampoo that updates momenta and weights. */
#include "clones.h"
#include "scalable_shampoo_move.h"

/* Updates momenta and weights in one pass over memory. Callers pass `kind`, `own`, `nesterov` and `decays` as
 * constants, so the compiled loop has no branches. */
PD_INLINE void pass(const scalable_move *m, pd_graft_kind kind, bool own, bool nesterov, bool decays)
{
    const pd_graft f = m->graft;
    const float length = m->length, beta1 = m->beta1, gain = m->gain, decay = m->weight_decay, run = m->run,
                stay = 1.0f - m->run, rate = m->rate;
    const float *before = m->before, *gradient = m->gradient, *diagonal = m->diagonal, *direction = m->direction;
    float *after = m->after, *momentum = m->momentum, *other = m->diagonal_momentum;

/* The new weights `after` are the same memory as `before` or `direction`, or overlap neither of them, so the compiler
 * may vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < m->n; i++) {
        float w = before[i];
        float d = pd_graft_direction(kind, &f, gradient[i], kind == PD_GRAFT_DIAGONAL ? diagonal[i] : 0);
        float u = (own ? direction[i] : d) * length;
        float mu, md, chosen, step;
        if (decays) {
            u = u + decay * w;
            d = d + decay * w;
        }
        mu = momentum[i] * beta1 + gain * u;
        md = (kind == PD_GRAFT_SIGN ? momentum[i] : other[i]) * beta1 + gain * d;
        chosen = run * mu + stay * md;
        if (kind != PD_GRAFT_SIGN) other[i] = md;
        momentum[i] = kind == PD_GRAFT_SIGN ? chosen : mu;
        step = nesterov ? gain * (run * u + stay * d) + beta1 * chosen : chosen;
        after[i] = w + rate * step;
    }
}

#define PASS(name, kind, own, nesterov, decays)                                                                        \
    PD_CLONES(void, name, (const scalable_move *m), (m))                                                               \
    {                                                                                                                  \
        pass(m, kind, own, nesterov, decays);                                                                          \
    }
#define PASSES(name, kind, own)                                                                                        \
    PASS(name##_plain, kind, own, false, false)                                                                        \
    PASS(name##_decay, kind, own, false, true)                                                                         \
    PASS(name##_ahead, kind, own, true, false)                                                                         \
    PASS(name##_ahead_decay, kind, own, true, true)
#define PASSES_OF(name)                                                                                                \
    {                                                                                                                  \
        { name##_plain, name##_decay },                                                                                \
        {                                                                                                              \
            name##_ahead, name##_ahead_decay                                                                           \
        }                                                                                                              \
    }

PASSES(graft_plain, PD_GRAFT_PLAIN, false)
PASSES(own_plain, PD_GRAFT_PLAIN, true)
PASSES(graft_sign, PD_GRAFT_SIGN, false)
PASSES(own_sign, PD_GRAFT_SIGN, true)
PASSES(graft_diagonal, PD_GRAFT_DIAGONAL, false)
PASSES(own_diagonal, PD_GRAFT_DIAGONAL, true)

void pd_scalable_move(const scalable_move *m)
{
    static void (*const passes[3][2][2][2])(const scalable_move *m) = {
        [PD_GRAFT_PLAIN] = { PASSES_OF(graft_plain), PASSES_OF(own_plain) },
        [PD_GRAFT_SIGN] = { PASSES_OF(graft_sign), PASSES_OF(own_sign) },
        [PD_GRAFT_DIAGONAL] = { PASSES_OF(graft_diagonal), PASSES_OF(own_diagonal) },
    };

    passes[m->graft.kind][m->own_direction][m->nesterov][m->decays](m);
}
