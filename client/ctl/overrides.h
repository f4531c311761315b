/* overrides.h - the commands set and settings: hyperparameters of a running job. */
#ifndef PD_OVERRIDES_H
#define PD_OVERRIDES_H

#include "command_line.h"

enum { PD_MOST_SETTINGS = 64 };         /* in one command */

int pd_run_set(pd_line *line);
int pd_run_settings(pd_line *line);

#endif
