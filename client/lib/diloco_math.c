/* diloco_math.c - computes differences of weights, and mixes global weights into a worker's own ones. */
#include "diloco_math.h"

#include <string.h>

void pd_diloco_difference(float *to, const float *global, const float *local, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = global[i] - local[i];
}

void pd_diloco_mix(float *local, const float *global, float alpha, size_t n)
{
    float rest = 1.0f - alpha;

    if (alpha == 0.0f)
        memcpy(local, global, n * sizeof *local);
    else if (alpha < 0.5f)
        for (size_t i = 0; i < n; i++) local[i] = global[i] + alpha * (local[i] - global[i]);
    else
        for (size_t i = 0; i < n; i++) local[i] = local[i] - (local[i] - global[i]) * rest;
}

void pd_diloco_carry(float *local, const float *global, const float *earlier, size_t n)
{
    for (size_t i = 0; i < n; i++) local[i] = local[i] + (global[i] - earlier[i]);
}
