/* fixed_hyper.h - which hyperparameters may not change from step to step. Pure. */
#ifndef PD_FIXED_HYPER_H
#define PD_FIXED_HYPER_H

#include "rule.h"

/* Returns the name of a hyperparameter that may not change from step to step, out of those in `mask` (bit i:
 * hyperparameter i of the optimizer `row`); NULL: all of them may change. */
const char *pd_fixed_hyper(const pd_optimizer_ops *row, uint64_t mask);

#endif
