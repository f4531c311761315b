#include "gram.h"

#include "dispatch.h"

typedef double doubles __attribute__((vector_size(64), may_alias));

/* Vectors of a tile: its sums stay in registers. */
enum { TILE = 4 };

PD_INLINE double fold(const doubles *lane)
{
    const double *l = (const double *)lane;

    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

/* Pairs within n vectors, the first of which is number `first`; n is a constant where it is called. This file is compiled with products and sums
 * fused where the CPU can: products of two float32 are exact in float64, so that changes no bit. */
PD_INLINE void triangle(double *dots, const double *const *x, int first, int n)
{
    doubles sum[TILE * (TILE + 1) / 2] = { 0 }, v[TILE];

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
        for (int i = 0; i <= j; i++) dots[PD_GRAM_AT(first + i, first + j)] += fold(&sum[PD_GRAM_AT(i, j)]);
}

/* Pairs of one of the first TILE vectors and one of the n that follow. */
PD_INLINE void rectangle(double *dots, const double *const *x, int n)
{
    doubles sum[TILE][TILE] = { { { 0 } } }, v[TILE];

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
        for (int i = 0; i < TILE; i++) dots[PD_GRAM_AT(i, TILE + j)] += fold(&sum[j][i]);
}

#define GRAM_OF(n)                                                                                                  \
    PD_CLONES static void triangle_##n(double *dots, const double *const *x, int first) { triangle(dots, x, first, n); }     \
    PD_CLONES static void rectangle_##n(double *dots, const double *const *x) { rectangle(dots, x, n); }
GRAM_OF(1)
GRAM_OF(2)
GRAM_OF(3)
GRAM_OF(4)

void pd_gram_add(double *dots, const double *const *x, int k)
{
    static void (*const triangles[])(double *, const double *const *, int) = { triangle_1, triangle_2, triangle_3, triangle_4 };
    static void (*const rectangles[])(double *, const double *const *) = { rectangle_1, rectangle_2, rectangle_3, rectangle_4 };

    triangles[(k < TILE ? k : TILE) - 1](dots, x, 0);
    if (k <= TILE) return;
    rectangles[k - TILE - 1](dots, x);
    triangles[k - TILE - 1](dots, x, TILE);
}
