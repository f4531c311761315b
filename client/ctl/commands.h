/* commands.h - the table of the paramctl commands that ask a daemon. */
#ifndef PD_COMMANDS_H
#define PD_COMMANDS_H

#include "command_line.h"

/* The commands, one a row. The last row is empty. */
extern const pd_command pd_commands[];

#endif
