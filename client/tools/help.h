/* help.h - prints the help of paramctl's commands from the command tables. */
#ifndef PD_HELP_H
#define PD_HELP_H

#include <stdio.h>

#include "command.h"

/* Prints the help of one command of paramctl: usage, options, exit statuses. */
void pd_help_command(FILE *out, const pd_command *command);
/* Prints the list of all commands and the common options. `tables` is an array of command tables that ends with
 * NULL. */
void pd_help_all(FILE *out, const pd_command *const *tables);

#endif
