/* initial_mean.h - makes a parameter's first weights, if they are the mean of the initial weights that all ranks
 * send. The mean is computed in a round before the first step. Step thread. */
#ifndef PD_INITIAL_MEAN_H
#define PD_INITIAL_MEAN_H

#include "steps.h"

/* Makes param->next, the parameter's first weights, from the mean of the ranks' initial weights, which is in the
 * parameter's accumulator (buffer for the sum of gradients). PD_NO_MEMORY: nothing has changed. */
int pd_initial_mean_take(const pd_steps *steps, pd_param *param);
/* Logs that the parameter's initial weights are not finite, and `why`. The weights are used all the same; the log
 * line helps a user who looks for the source of a NaN. */
void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why);

#endif
