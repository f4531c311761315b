/* diloco_math.h - the arithmetic of DiLoCo on a worker's weights, in float32. Each operation is rounded, in the order
 * that paramd/diloco.h writes. Pure functions; any thread. */
#ifndef PD_DILOCO_MATH_H
#define PD_DILOCO_MATH_H

#include <stddef.h>

/* Computes the difference of the global weights and the worker's own ones: to = global - local. */
void pd_diloco_difference(float *to, const float *global, const float *local, size_t n);
/* Mixes new global weights into the worker's own ones, of which the part `alpha` (0 to 1) stays. */
void pd_diloco_mix(float *local, const float *global, float alpha, size_t n);
/* Moves the worker's weights by as much as the global ones have moved, so its own work stays in them. */
void pd_diloco_carry(float *local, const float *global, const float *earlier, size_t n);

#endif
