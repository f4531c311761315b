/* shampoo_step.h - the phases of shampoo, over blocks. */
#ifndef PD_SHAMPOO_STEP_H
#define PD_SHAMPOO_STEP_H

#include "row.h"

/* 1 - beta^t as upstream computes it: in float32, the power too. */
float pd_shampoo_correction(double beta, int64_t t);
/* Roots are computed from the factors of this step. */
bool  pd_shampoo_due(const pd_plan *plan, const double *h, int64_t count, float *const *slot);

/* Phases over blocks. */
void  pd_shampoo_factors(const pd_unit *unit);
bool  pd_shampoo_no_factors(const pd_plan *plan, const double *h, int64_t count);
void  pd_shampoo_step(const pd_unit *unit);

#endif
