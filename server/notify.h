/* notify.h - reports the state of the daemon to the service manager, by systemd's datagrams. Main thread. */
#ifndef PD_NOTIFY_H
#define PD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Sends "READY=1", "STOPPING=1" or "WATCHDOG=1" to $NOTIFY_SOCKET ("@..." is abstract), if it is set. False: the
 * message could not be sent. */
bool     pd_notify(const char *state);
/* Returns the interval in ms at which the watchdog expects a message: half of $WATCHDOG_USEC; 0: there is no
 * watchdog. */
uint64_t pd_notify_watchdog_ms(void);
/* Returns how many listening sockets this process was given ($LISTEN_FDS, $LISTEN_PID). *first: the first
 * descriptor. */
int      pd_notify_sockets(int *first);

#endif
