/* lone_step.h - takes a whole step of one optimizer without a server, for tests of optimizers. */
#ifndef LONE_STEP_H
#define LONE_STEP_H

#include "optimizer.h"

/* Takes a whole step of the optimizer. Runs each task in the calling thread as soon as its inputs are captured. */
void lone_step(pd_optim *optim, const pd_step_io *io, int threads);

#endif
