/* reloading.h - applies limits that may change while the daemon runs: SIGHUP reads the configuration again. Loop
 * thread. */
#ifndef PD_RELOADING_H
#define PD_RELOADING_H

#include "loop.h"

/* Lets another thread read the configuration, then applies the limits in it. Does nothing if the daemon is stopping.
 * A call while a reload is under way starts another reload afterwards. */
void pd_reloading_begin(pd_daemon *daemon);

#endif
