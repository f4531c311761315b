/* shampoo_step.h - the phases of a step of the optimizer shampoo. Threads compute them block by block. */
#ifndef PD_SHAMPOO_STEP_H
#define PD_SHAMPOO_STEP_H

#include "optimizer_ops.h"

/* Returns the bias correction 1 - beta^t as the original implementation computes it: in float32, including the
 * power. */
float pd_shampoo_correction(double beta, int64_t t);
/* Returns whether this step starts to compute new inverse roots from the factors. */
bool pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);

/* The phases of a shampoo step, each for one block. pd_shampoo_factors updates the statistics in steps that compute
 * matrix roots; pd_shampoo_no_factors returns whether a step skips it. pd_shampoo_step does the rest. */
void pd_shampoo_factors(const pd_unit *unit);
bool pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count);
void pd_shampoo_step(const pd_unit *unit);

#endif
