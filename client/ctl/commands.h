/* commands.h - the table of the paramctl commands that ask a daemon, or read its directory of checkpoints. */
#ifndef PD_COMMANDS_H
#define PD_COMMANDS_H

#include "command_line.h"

/* The paramctl commands that ask a daemon, one a row. The last row is empty. */
extern const pd_command pd_commands[];

#endif
