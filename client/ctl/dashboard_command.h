/* dashboard_command.h - the command dashboard: serves the page of a local daemon to this machine's browsers. */
#ifndef PD_DASHBOARD_COMMAND_H
#define PD_DASHBOARD_COMMAND_H

#include "command_line.h"

int pd_run_dashboard(pd_line *line);

#endif
