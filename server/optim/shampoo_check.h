/* shampoo_check.h - checks the hyperparameters of shampoo, each by itself and in combination. */
#ifndef PD_SHAMPOO_CHECK_H
#define PD_SHAMPOO_CHECK_H

#include "paramd/optim.h"

/* Checks the hyperparameters of shampoo; it is the function `check` in shampoo's entry in the table of optimizers
 * (optimizer_ops.h). Values that Meta's implementation refuses are refused with the same text. */
int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* Returns a warning about hyperparameters of shampoo that are valid but doubtful, or NULL. */
const char *pd_shampoo_warning(const pd_hypers *declared);

#endif
