/* orders.h - the paramctl commands ping (is a daemon there?) and drop (delete a job). */
#ifndef PD_ORDERS_H
#define PD_ORDERS_H

#include "command_line.h"

int pd_run_ping(pd_line *line);
int pd_run_drop(pd_line *line);

#endif
