/* lone_step.h - a whole step of one optimizer by itself, for tests of rows. */
#ifndef LONE_STEP_H
#define LONE_STEP_H

#include "optimizer.h"

/* Its tasks are run here, each as soon as it can be captured. */
void lone_step(pd_optim *optim, const pd_step_io *io, int threads);

#endif
