/* shampoo_check.h - checks the hyperparameters of shampoo, each by itself and those that depend on each other. */
#ifndef PD_SHAMPOO_CHECK_H
#define PD_SHAMPOO_CHECK_H

#include "paramd/optim.h"

/* Checks the hyperparameters of shampoo, as `check` of its row (row.h). Values that Meta's implementation refuses
 * are refused with the same text. */
int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* Returns a warning about hyperparameters that are valid but doubtful, or NULL. */
const char *pd_shampoo_warning(const pd_hypers *declared);

#endif
