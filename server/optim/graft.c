/* graft.c - computes directions of first-order optimizers; Shampoo's step gets the length of such a direction
 * (grafting). */
#include "graft.h"

#include <string.h>

#include "lanes.h"

/* Number of elements of a direction that are computed at a time, so that they are still in the first-level cache when
 * they are squared. */
enum { TILE = 1024 };

/* Squares eight elements in float32, and adds the squares to *sum in float64. */
PD_INLINE void add_squared(pd_lanes *sum, const float *x)
{
    pd_lanes_add(sum, pd_lanes_widen(PD_FLOATS(x) * PD_FLOATS(x), PD_FLOATS(x + 4) * PD_FLOATS(x + 4)));
}

/* Returns the sum of the squares of x, added up in 16 lanes: element i belongs to lane i mod 16, and the lanes are
 * added pairwise at the end. */
PD_CLONES(double, squares, (const float *x, int64_t n), (x, n))
{
    pd_lanes low = { 0 }, high = { 0 };
    float tail[16] = { 0 };
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        add_squared(&low, x + i);
        add_squared(&high, x + i + 8);
    }
    memcpy(tail, x + i, (size_t)(n - i) * sizeof *tail);
    add_squared(&low, tail);
    add_squared(&high, tail + 8);
    pd_lanes_add(&low, high);
    return pd_lanes_sum(low);
}

double pd_squares(const float *x, int64_t n)
{
    return squares(x, n);
}

float pd_norm(double sum)
{
    return sqrtf((float)sum);
}

PD_CLONES(void, accumulate, (float *restrict V, const float *restrict G, int64_t n, const pd_graft *f), (V, G, n, f))
{
    const float divisor = f->divisor, w1 = f->w1, w2 = f->w2;

    for (int64_t i = 0; i < n; i++) {
        float g = G[i] / divisor;
        V[i] = w1 * V[i] + w2 * (g * g);
    }
}

void pd_graft_accumulate(float *V, const float *G, int64_t n, const pd_graft *f)
{
    if (f->kind == PD_GRAFT_DIAGONAL || f->kind == PD_GRAFT_CORRECTED) accumulate(V, G, n, f);
}

/* Computes the directions D of one kind of first-order optimizer, such as a sign method, from the gradients G and the
 * sums of their squares V. The callers pass `kind` as a constant, so the loop has no branches. */
PD_INLINE void directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f, pd_graft_kind kind)
{
    const pd_graft own = *f;

#pragma GCC ivdep /* the arrays of directions and gradients are identical or disjoint, so the loop may be vectorized */
    for (int64_t i = 0; i < n; i++) D[i] = pd_graft_direction(kind, &own, G[i], kind == PD_GRAFT_SIGN ? 0 : V[i]);
}

PD_CLONES(void, sign, (float *D, const float *G, int64_t n, const pd_graft *f), (D, G, n, f))
{
    directions(D, G, NULL, n, f, PD_GRAFT_SIGN);
}
PD_CLONES(void, diagonal, (float *D, const float *G, const float *V, int64_t n, const pd_graft *f), (D, G, V, n, f))
{
    directions(D, G, V, n, f, PD_GRAFT_DIAGONAL);
}
PD_CLONES(void, corrected, (float *D, const float *G, const float *V, int64_t n, const pd_graft *f), (D, G, V, n, f))
{
    directions(D, G, V, n, f, PD_GRAFT_CORRECTED);
}

void pd_graft_directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f)
{
    switch (f->kind) {
    case PD_GRAFT_PLAIN: memmove(D, G, (size_t)n * sizeof *D); break;
    case PD_GRAFT_SIGN: sign(D, G, n, f); break;
    case PD_GRAFT_DIAGONAL: diagonal(D, G, V, n, f); break;
    case PD_GRAFT_CORRECTED: corrected(D, G, V, n, f); break;
    }
}

double pd_graft_squares(const float *G, const float *V, int64_t n, const pd_graft *f)
{
    float D[TILE];
    double sum = 0;

    if (f->kind == PD_GRAFT_PLAIN) return squares(G, n);
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        pd_graft_directions(D, G + i, V == NULL ? NULL : V + i, some, f);
        sum += squares(D, some);
    }
    return sum;
}

double pd_sign_squares(const float *x, int64_t n)
{
    return pd_graft_squares(x, NULL, n, &(pd_graft){ .kind = PD_GRAFT_SIGN });
}
