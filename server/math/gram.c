/* gram.c - computes dot products of a few short vectors with each other. */
#include "gram.h"

#include "lanes.h"

#define HALF(gram, i, j, h) ((pd_doubles *)((gram)->lane[PD_GRAM_AT(i, j)] + 4 * (h)))

/* TILE: number of vectors whose dot products with each other are summed in one loop. PAIR: number of vectors whose dot
 * products with TILE others are summed in one loop. With these numbers the sums stay in the 16 registers of AVX2. */
enum { TILE = 4, PAIR = 2 };

/* Adds the dot products of all pairs among the n vectors x[first] ... x[first + n - 1]. Each dot product is split into
 * eight lanes: if half is 0, the function computes lanes 0 to 3, otherwise lanes 4 to 7. The callers pass n and half as
 * constants, so that the loops are unrolled.
 *
 * In this file the compiler may fuse a multiplication and an addition into one instruction. That changes no bit of the
 * result, because products of two float32 are exact in float64. */
PD_INLINE void triangle_half(pd_gram *gram, const double *const *x, int first, int n, int half)
{
    pd_doubles sum[TILE * (TILE + 1) / 2], v[TILE];

#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i <= j; i++) sum[PD_GRAM_AT(i, j)] = *HALF(gram, first + i, first + j, half);
    for (int e = 4 * half; e < PD_GRAM_BLOCK; e += 8) {
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            v[j] = PD_DOUBLES(x[first + j] + e);
#pragma GCC unroll 4
            for (int i = 0; i <= j; i++) sum[PD_GRAM_AT(i, j)] += v[i] * v[j];
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i <= j; i++) *HALF(gram, first + i, first + j, half) = sum[PD_GRAM_AT(i, j)];
}

/* Adds the dot products of the vectors x[0] ... x[TILE - 1] with the vectors x[first] ... x[first + n - 1]; n is at
 * most PAIR. */
PD_INLINE void rectangle_half(pd_gram *gram, const double *const *x, int first, int n, int half)
{
    pd_doubles sum[PAIR][TILE], v[TILE];

#pragma GCC unroll 2
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) sum[j][i] = *HALF(gram, i, first + j, half);
    for (int e = 4 * half; e < PD_GRAM_BLOCK; e += 8) {
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) v[i] = PD_DOUBLES(x[i] + e);
#pragma GCC unroll 2
        for (int j = 0; j < n; j++) {
            pd_doubles w = PD_DOUBLES(x[first + j] + e);
#pragma GCC unroll 4
            for (int i = 0; i < TILE; i++) sum[j][i] += v[i] * w;
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < n; j++)
#pragma GCC unroll 4
        for (int i = 0; i < TILE; i++) *HALF(gram, i, first + j, half) = sum[j][i];
}

PD_INLINE void triangle(pd_gram *gram, const double *const *x, int first, int n)
{
    triangle_half(gram, x, first, n, 0);
    triangle_half(gram, x, first, n, 1);
}

/* Adds the dot products of each of the first TILE vectors with each of the n vectors after them. */
PD_INLINE void rectangle(pd_gram *gram, const double *const *x, int n)
{
    for (int half = 0; half < 2; half++) {
        int j = TILE;
        for (; j + PAIR <= TILE + n; j += PAIR) rectangle_half(gram, x, j, PAIR, half);
        if (j < TILE + n) rectangle_half(gram, x, j, 1, half);
    }
}

#define GRAM_OF(n)                                                                                                     \
    PD_CLONES(void, triangle_##n, (pd_gram * gram, const double *const *x, int first), (gram, x, first))               \
    {                                                                                                                  \
        triangle(gram, x, first, n);                                                                                   \
    }                                                                                                                  \
    PD_CLONES(void, rectangle_##n, (pd_gram * gram, const double *const *x), (gram, x))                                \
    {                                                                                                                  \
        rectangle(gram, x, n);                                                                                         \
    }
GRAM_OF(1)
GRAM_OF(2)
GRAM_OF(3)
GRAM_OF(4)

void pd_gram_add(pd_gram *gram, const double *const *x, int k)
{
    static void (*const triangles[])(pd_gram *, const double *const *, int) = { triangle_1, triangle_2, triangle_3,
                                                                                triangle_4 };
    static void (*const rectangles[])(pd_gram *, const double *const *) = { rectangle_1, rectangle_2, rectangle_3,
                                                                            rectangle_4 };

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
