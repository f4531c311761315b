/* shampoo_check.h - checks the values of shampoo: upstream's own refusals in its words, and what concerns several
 * values. */
#ifndef PD_SHAMPOO_CHECK_H
#define PD_SHAMPOO_CHECK_H

#include "paramd/optim.h"

/* The row's check: upstream's own refusals in its words, and what concerns several values. */
int pd_shampoo_check(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* The row's warning. */
const char *pd_shampoo_warning(const pd_hypers *declared);

#endif
