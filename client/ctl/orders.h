/* orders.h - the paramctl commands ping (is a daemon there?), drop and reset-state (set optimizer state
 * back to its initial values). */
#ifndef PD_ORDERS_H
#define PD_ORDERS_H

#include "command_line.h"

int pd_run_ping(pd_line *line);
int pd_run_drop(pd_line *line);
int pd_run_reset_state(pd_line *line);

#endif
