/* top.h - the command top: shows what each job of a daemon does, while it changes. */
#ifndef PD_TOP_H
#define PD_TOP_H

#include "command_line.h"

int pd_run_top(pd_line *line);

#endif
