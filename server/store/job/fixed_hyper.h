/* fixed_hyper.h - which hyperparameters may not change from step to step. Pure. */
#ifndef PD_FIXED_HYPER_H
#define PD_FIXED_HYPER_H

#include "rule.h"

/* Returns the name of a hyperparameter in `mask` (bit i: the row's hyperparameter i) that may not change from step
 * to step; NULL: all of them may. */
const char *pd_fixed_hyper(const pd_row *row, uint64_t mask);

#endif
