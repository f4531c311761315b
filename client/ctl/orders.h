/* orders.h - the commands whose answer is that it is done: ping, drop, drain, shutdown. */
#ifndef PD_ORDERS_H
#define PD_ORDERS_H

#include "command_line.h"

int pd_run_ping(pd_line *line);
int pd_run_drop(pd_line *line);
int pd_run_drain(pd_line *line);
int pd_run_shutdown(pd_line *line);

#endif
