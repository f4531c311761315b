/* optimizer_list.h - the command optimizers: which ones a daemon has, and the hyperparameters of one. */
#ifndef PD_OPTIMIZER_LIST_H
#define PD_OPTIMIZER_LIST_H

#include "command_line.h"

int pd_run_optimizers(pd_line *line);

#endif
