/* initial_mean.h - initial weights that are the mean of those of all ranks: a round before the first. Step thread. */
#ifndef PD_INITIAL_MEAN_H
#define PD_INITIAL_MEAN_H

#include "steps.h"

/* Makes param->next of the mean, which is in the accumulator. PD_NO_MEMORY: nothing has changed. */
int  pd_initial_mean_take(const pd_steps *steps, pd_param *param);
/* Logs that initial weights are not finite, and why. They are taken all the same: the line tells who looks for the
 * source of a NaN. */
void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why);

#endif
