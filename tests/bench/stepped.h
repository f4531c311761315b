/* stepped.h - hyperparameters from arguments, an optimizer of one parameter in this process, and the time of a whole
 * step. */
#ifndef PD_STEPPED_H
#define PD_STEPPED_H

#include "optimizer.h"

/* Returns the hyperparameters of an optimizer: those of n arguments HYPER=VALUE, and defaults. Splits the arguments at
 * the first "=". Ends the program if an argument is wrong. */
pd_hypers stepped_hypers(const char *row, char **argument, int n);
/* Makes an optimizer with default hyperparameters, except for `hyper` (NULL: no exception). Ends the program if that
 * fails. */
pd_optim *stepped_optim(const char *row, const char *hyper, const char *value, pd_shape shape);
/* Makes an optimizer from a rule without a pattern, such as "sgd lr=0.1 momentum=0.9". Ends the program if that fails.
 */
pd_optim *stepped_by_rule(const char *rule, pd_shape shape);
/* Fills all roots with dense matrices, so that steps cost as much as with computed roots. */
void stepped_fill_roots(const pd_optim *optim);
/* Takes a step and returns its time in milliseconds. Preconditioner tasks run within the call, but their time does not
 * count. */
double stepped_ms(pd_optim *optim, const pd_step_io *io, int threads);

#endif
