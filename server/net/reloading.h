/* reloading.h - reloads the configuration on SIGHUP, and applies the limits that may change while the daemon runs. Loop
 * thread. */
#ifndef PD_RELOADING_H
#define PD_RELOADING_H

#include "loop.h"

/* Lets another thread read the configuration, then applies the limits in it. Does nothing if the daemon is stopping. A
 * call while the configuration is being read starts another reload afterwards. A call before pd_conversation_start is
 * remembered. */
void pd_reloading_begin(pd_daemon *daemon);
/* Begins the reload that was asked for before the start, if there is one. Part of pd_conversation_start. */
void pd_reloading_start(pd_daemon *daemon);

#endif
