/* import_state.h - the command import-state: puts the optimizer state of a saved file into a job. */
#ifndef PD_IMPORT_STATE_H
#define PD_IMPORT_STATE_H

#include "command_line.h"

int pd_run_import_state(pd_line *line);

#endif
