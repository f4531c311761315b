/* stepped.h - an optimizer of one parameter in this process, and the time of a whole step. It is for figures whose
 * steps have no root tasks. */
#ifndef PD_STEPPED_H
#define PD_STEPPED_H

#include "optimizer.h"

/* Makes an optimizer with default hyperparameters, except for `hyper` (NULL: no exception). Ends the program if that
 * fails. */
pd_optim *stepped_optim(const char *row, const char *hyper, const char *value, pd_shape shape);
double stepped_ms(pd_optim *optim, const pd_step_io *io, int threads);

#endif
