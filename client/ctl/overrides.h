/* overrides.h - the paramctl commands set and settings: override hyperparameters of a running job, and list the
 * overrides. */
#ifndef PD_OVERRIDES_H
#define PD_OVERRIDES_H

#include "command_line.h"

enum { PD_MOST_SETTINGS = 64 }; /* most NAME=VALUE arguments in one command */

int pd_run_set(pd_line *line);
int pd_run_settings(pd_line *line);

#endif
