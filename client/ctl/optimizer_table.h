/* optimizer_table.h - an optimizer and its hyperparameters as text for people. Lists ("betas[0]", "betas[1]") show as one. */
#ifndef PD_OPTIMIZER_TABLE_H
#define PD_OPTIMIZER_TABLE_H

#include "format.h"
#include "message.h"

/* One line of a table of optimizers: name, what it is, names of its hyperparameters. */
void pd_optimizer_row(pd_table *table, const Paramd__Optimizer *row);
/* All of one on stdout. */
void pd_optimizer_print(const Paramd__Optimizer *row);

#endif
