/* limited_row.h - two variants of sgd for tests of clipping. They are not in the table: give them to a store as rows of
 * its own. */
#ifndef LIMITED_ROW_H
#define LIMITED_ROW_H

#include "optimizer_ops.h"

/* Returns the optimizer "limited", which clips all gradients of a rule by their common norm. The limit is the
 * hyperparameter `dampening`, which sgd does not use without momentum. */
const pd_optimizer_ops *limited_row(void);
/* Returns the optimizer "values", whose inputs are values instead of gradients. */
const pd_optimizer_ops *values_row(void);

#endif
