/* hyper_range.h - the ranges of hyperparameters. Pure functions. */
#ifndef PD_HYPER_RANGE_H
#define PD_HYPER_RANGE_H

#include "paramd/optim.h"

#include <stdbool.h>

/* Return the least and the largest number that a hyperparameter may have. Optimizers compute in float32, so a real
 * number must be finite there. The least value of the table may be infinite, if a word stands for it. */
double pd_hyper_least(const pd_hyper *hyper);
double pd_hyper_most(const pd_hyper *hyper);
/* Returns whether a number is outside the hyperparameter's range. The value that its word stands for is inside. */
bool pd_hyper_is_outside(const pd_hyper *hyper, double value);
/* Writes the range of values that a hyperparameter may have, for an error text such as "0 to 100, or ready". Returns
 * `text`. */
const char *pd_hyper_range_text(const pd_hyper *hyper, char *text, size_t size);

#endif
