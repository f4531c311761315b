/* shutdown_command.h - the paramctl commands drain and shutdown. They wait until the open rounds are closed: rounds
 * in which gradients of some ranks are missing. */
#ifndef PD_SHUTDOWN_COMMAND_H
#define PD_SHUTDOWN_COMMAND_H

#include "command_line.h"

int pd_run_drain(pd_line *line);
int pd_run_shutdown(pd_line *line);

#endif
