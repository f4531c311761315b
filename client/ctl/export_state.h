/* export_state.h - paramctl export: writes a job's weights, and its optimizer state, to a file. */
#ifndef PD_EXPORT_STATE_H
#define PD_EXPORT_STATE_H

#include "command_line.h"

int pd_run_export_command(pd_line *line);

#endif
