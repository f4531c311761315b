/* token_command.h - the paramctl command token, which makes keys for tls:// addresses. */
#ifndef PD_TOKEN_COMMAND_H
#define PD_TOKEN_COMMAND_H

#include "command_line.h"

int pd_run_token(pd_line *line);

#endif
