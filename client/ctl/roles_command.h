/* roles_command.h - the command roles, which says what a file of roles allows, without a daemon. */
#ifndef PD_ROLES_COMMAND_H
#define PD_ROLES_COMMAND_H

#include "command_line.h"

int pd_run_roles(pd_line *line);

#endif
