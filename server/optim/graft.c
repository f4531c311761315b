#include "graft.h"

#include <string.h>

/* Elements of D that are made at a time, to be squared while they are in the first-level cache. */
enum { TILE = 1024 };

typedef float  floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64)));

PD_INLINE void add_squared(doubles *sum, const float *x)
{
    floats lane = *(const floats *)x;

    *sum += __builtin_convertvector(lane * lane, doubles);
}

/* In 16 lanes, element i in lane i mod 16, added pairwise at the end. */
PD_CLONES static double squares(const float *x, int64_t n)
{
    doubles low = { 0 }, high = { 0 };
    float tail[16] = { 0 };
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        add_squared(&low, x + i);
        add_squared(&high, x + i + 8);
    }
    memcpy(tail, x + i, (size_t)(n - i) * sizeof *tail);
    add_squared(&low, tail);
    add_squared(&high, tail + 8);
    low += high;
    return ((low[0] + low[4]) + (low[2] + low[6])) + ((low[1] + low[5]) + (low[3] + low[7]));
}

double pd_squares(const float *x, int64_t n)                /* clones of an exported function would be exported, too */
{
    return squares(x, n);
}

float pd_norm(double sum)
{
    return sqrtf((float)sum);
}

PD_CLONES static void accumulate(float *restrict V, const float *restrict G, int64_t n, const pd_graft *f)
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

/* `kind` is a constant where it is called. */
PD_INLINE void directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f, pd_graft_kind kind)
{
    const pd_graft own = *f;

#pragma GCC ivdep                                       /* D may be G itself, never a shifted part of it */
    for (int64_t i = 0; i < n; i++) D[i] = pd_graft_direction(kind, &own, G[i], kind == PD_GRAFT_SIGN ? 0 : V[i]);
}

PD_CLONES static void sign(float *D, const float *G, int64_t n, const pd_graft *f) { directions(D, G, NULL, n, f, PD_GRAFT_SIGN); }
PD_CLONES static void diagonal(float *D, const float *G, const float *V, int64_t n, const pd_graft *f) { directions(D, G, V, n, f, PD_GRAFT_DIAGONAL); }
PD_CLONES static void corrected(float *D, const float *G, const float *V, int64_t n, const pd_graft *f) { directions(D, G, V, n, f, PD_GRAFT_CORRECTED); }

void pd_graft_directions(float *D, const float *G, const float *V, int64_t n, const pd_graft *f)
{
    switch (f->kind) {
    case PD_GRAFT_PLAIN:     memmove(D, G, (size_t)n * sizeof *D); break;
    case PD_GRAFT_SIGN:      sign(D, G, n, f); break;
    case PD_GRAFT_DIAGONAL:  diagonal(D, G, V, n, f); break;
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
