/* stepped.h - an optimizer of one parameter in process, a whole step of it timed: for the figures of steps without tasks. */
#ifndef PD_STEPPED_H
#define PD_STEPPED_H

#include "optimizer.h"

/* A row's presets but for one hyperparameter (hyper NULL: none). Ends the program where it cannot be. */
pd_optim *stepped_optim(const char *row, const char *hyper, const char *value, pd_shape shape);
double    stepped_ms(pd_optim *optim, const pd_step_io *io, int threads);

#endif
