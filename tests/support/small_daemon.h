/* small_daemon.h - the settings of a daemon that a test runs in its own process. */
#ifndef SMALL_DAEMON_H
#define SMALL_DAEMON_H

#include "daemon_config.h"

/* Returns settings for a few connections and small frames: no listener, no deadline that passes during a test, and no
 * log. The test changes those that it is about. */
pd_daemon_config small_daemon(void);

#endif
