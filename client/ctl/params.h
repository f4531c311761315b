/* params.h - the command params: lists the parameters of a job. */
#ifndef PD_PARAMS_H
#define PD_PARAMS_H

#include "command_line.h"

int pd_run_params(pd_line *line);

#endif
