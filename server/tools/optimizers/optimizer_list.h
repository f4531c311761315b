/* optimizer_list.h - the command optimizers: lists the optimizers of this release or of a daemon, or the
 * hyperparameters of one. */
#ifndef PD_OPTIMIZER_LIST_H
#define PD_OPTIMIZER_LIST_H

#include "command_line.h"

int pd_run_optimizers(pd_line *line);

#endif
