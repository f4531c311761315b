/* state_table.h - the command state: prints a table of a job's optimizer state tensors. */
#ifndef PD_STATE_TABLE_H
#define PD_STATE_TABLE_H

#include "command_line.h"

int pd_run_state(pd_line *line);

#endif
