#include "gram.h"

#include "dispatch.h"

typedef float  floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64)));

PD_INLINE double fold(const doubles *lane)
{
    const double *l = (const double *)lane;

    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

PD_CLONES static double dot(const float *x, const float *y)
{
    doubles sum = { 0 };

    for (int i = 0; i < PD_GRAM_BLOCK; i += 8)
        sum += __builtin_convertvector(*(const floats *)(x + i), doubles) * __builtin_convertvector(*(const floats *)(y + i), doubles);
    return fold(&sum);
}

void pd_gram_add(double *dots, const float *const *x, int k)
{
    for (int j = 0; j < k; j++)
        for (int i = 0; i <= j; i++) dots[PD_GRAM_AT(i, j)] += dot(x[i], x[j]);
}
