/* counting_row.h - an optimizer for tests of what couples the parameters of a job: its counter belongs to a group, and
 * it may refuse a step.
 *
 *     early            F <- the gradient's first element                    slot "first"
 *     task, each step  R <- F, or, where F > COUNTING_LIMIT, it fails and the step is refused         slot "root"
 *     late             w <- w - count G
 *
 * So the weights show which count each step had. With the hyperparameter counts_empty, rounds without any gradient
 * count. The optimizer is not in the table of optimizers: give it to a store in its configuration. */
#ifndef COUNTING_ROW_H
#define COUNTING_ROW_H

#include "optimizer_ops.h"

#define COUNTING_LIMIT 1000

extern const pd_optimizer_ops counting_row;

/* Returns the optimizers for a store's configuration: counting_row, sgd and adam. */
const pd_optimizer_ops *const *counting_rows(void);

#endif
