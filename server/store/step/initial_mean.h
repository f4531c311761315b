/* initial_mean.h - initial weights as the mean of all ranks' initial weights, which is computed in a round before
 * the first step. Step thread. */
#ifndef PD_INITIAL_MEAN_H
#define PD_INITIAL_MEAN_H

#include "steps.h"

/* Makes param->next from the mean in the parameter's accumulator. PD_NO_MEMORY: nothing has changed. */
int pd_initial_mean_take(const pd_steps *steps, pd_param *param);
/* Logs that the parameter's initial weights are not finite, and why. They are used all the same. The log line helps
 * a user who looks for the source of a NaN. */
void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why);

#endif
