#include "gram.h"

#include "clones.h"

typedef double doubles __attribute__((vector_size(64), may_alias));

#define LANES(gram, i, j) ((doubles *)(gram)->lane[PD_GRAM_AT(i, j)])

/* Vectors of a tile: its sums stay in registers. */
enum { TILE = 4 };

/* Pairs within n vectors, the first of which is number `first`; n is a constant where it is called. This file is compiled with products and sums
 * fused where the CPU can: products of two float32 are exact in float64, so that changes no bit. */
PD_INLINE void triangle(pd_gram *gram, const double *const *x, int first, int n)
{
    doubles sum[TILE * (TILE + 1) / 2], v[TILE];

#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i <= j; i++) sum[PD_GRAM_AT(i, j)] = *LANES(gram, first + i, first + j);
    for (int e = 0; e < PD_GRAM_BLOCK; e += 8) {
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            v[j] = *(const doubles *)(x[first + j] + e);
#pragma GCC unroll 4
            for (int i = 0; i <= j; i++) sum[PD_GRAM_AT(i, j)] += v[i] * v[j];
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i <= j; i++) *LANES(gram, first + i, first + j) = sum[PD_GRAM_AT(i, j)];
}

/* Pairs of one of the first TILE vectors and one of the n that follow. */
PD_INLINE void rectangle(pd_gram *gram, const double *const *x, int n)
{
    doubles sum[TILE][TILE], v[TILE];

#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) sum[j][i] = *LANES(gram, i, TILE + j);
    for (int e = 0; e < PD_GRAM_BLOCK; e += 8) {
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) v[i] = *(const doubles *)(x[i] + e);
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            doubles w = *(const doubles *)(x[TILE + j] + e);
#pragma GCC unroll 4
            for (int i = 0; i < TILE; i++) sum[j][i] += v[i] * w;
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) *LANES(gram, i, TILE + j) = sum[j][i];
}

#define GRAM_OF(n)                                                                                                  \
    PD_CLONES static void triangle_##n(pd_gram *gram, const double *const *x, int first) { triangle(gram, x, first, n); }     \
    PD_CLONES static void rectangle_##n(pd_gram *gram, const double *const *x) { rectangle(gram, x, n); }
GRAM_OF(1)
GRAM_OF(2)
GRAM_OF(3)
GRAM_OF(4)

void pd_gram_add(pd_gram *gram, const double *const *x, int k)
{
    static void (*const triangles[])(pd_gram *, const double *const *, int) = { triangle_1, triangle_2, triangle_3, triangle_4 };
    static void (*const rectangles[])(pd_gram *, const double *const *) = { rectangle_1, rectangle_2, rectangle_3, rectangle_4 };

    triangles[(k < TILE ? k : TILE) - 1](gram, x, 0);
    if (k <= TILE) return;
    rectangles[k - TILE - 1](gram, x);
    triangles[k - TILE - 1](gram, x, TILE);
}

void pd_gram_fold(const pd_gram *gram, double dots[PD_GRAM_DOTS])
{
    for (int i = 0; i < PD_GRAM_DOTS; i++) {
        const double *l = gram->lane[i];
        dots[i] = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
    }
}
