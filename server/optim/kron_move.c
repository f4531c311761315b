/* kron_move.c - the two passes of the optimizer kron over all elements: the update of the momentum, and the move of
 * the weights. */
#include "kron_move.h"

#include <math.h>

#include "convert.h"
#include "clones.h"

/* ---- momentum ---- */

PD_CLONES(double, sum_of_sizes, (const float *x, int64_t n), (x, n))
{
    double lane[16] = { 0 }, sum = 0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) lane[k] += (double)fabsf(x[i + k]);
    for (int k = 0; i < n; i++, k++) lane[k] += (double)fabsf(x[i]);
    for (int k = 0; k < 16; k++) sum += lane[k];
    return sum;
}

/* Updates the momentum of n elements. Each caller passes `rounds` (the product with the old momentum is rounded to
 * bfloat16) as a constant, so the compiler makes a loop for each value. */
PD_INLINE void follow(const pd_kron_momentum *m, bool rounds)
{
    const float keep = m->keep, gain = m->gain, divisor = m->divisor;
    const float *restrict gradient = m->gradient;
    float *restrict X = m->X, *restrict mu = m->mu;

    for (int64_t i = 0; i < m->n; i++) {
        float kept = keep * mu[i];
        if (rounds) kept = pd_f32_from_bf16(pd_bf16_from_f32(kept));
        mu[i] = gain * gradient[i] + kept;
        X[i] = mu[i] / divisor;
    }
}

PD_CLONES(void, follow_plainly, (const pd_kron_momentum *m), (m))
{
    follow(m, false);
}
PD_CLONES(void, follow_rounded, (const pd_kron_momentum *m), (m))
{
    follow(m, true);
}

double pd_kron_follow(const pd_kron_momentum *m)
{
    if (m->mu == NULL)
        for (int64_t i = 0; i < m->n; i++) m->X[i] = m->gradient[i];
    else if (m->rounds_product)
        follow_rounded(m);
    else
        follow_plainly(m);
    return sum_of_sizes(m->X, m->n);
}

/* ---- the move of the weights ---- */

/* Computes new weights from the update. Each caller passes `updates` (whether the change of the weights is stored as
 * well) as a constant, so the compiler makes a loop for each value. */
PD_INLINE void move(const pd_kron_step *s, bool updates)
{
    const float clip = s->clip, decay = s->decay, rate = s->rate;
    const float *before = s->before, *u = s->u;
    float *after = s->after, *update = s->update;

#pragma GCC ivdep /* `after` (new weights) is `before`, `u`, or disjoint from both, so the loop may be vectorized */
    for (int64_t i = 0; i < s->n; i++) {
        float w = before[i], change = rate * (u[i] / clip + decay * w);
        if (updates) update[i] = change;
        after[i] = w + change;
    }
}

PD_CLONES(void, move_alone, (const pd_kron_step *s), (s))
{
    move(s, false);
}
PD_CLONES(void, move_and_tell, (const pd_kron_step *s), (s))
{
    move(s, true);
}

void pd_kron_move(const pd_kron_step *s)
{
    if (s->update != NULL)
        move_and_tell(s);
    else
        move_alone(s);
}
