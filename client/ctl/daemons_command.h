/* daemons_command.h - the command daemons: lists this user's local daemons, their jobs and steps. */
#ifndef PD_DAEMONS_COMMAND_H
#define PD_DAEMONS_COMMAND_H

#include "command_line.h"

int pd_run_daemons(pd_line *line);

#endif
