/* status.h - the command status: prints a daemon's memory, traffic and jobs. */
#ifndef PD_STATUS_H
#define PD_STATUS_H

#include "command_line.h"

int pd_run_status(pd_line *line);

#endif
