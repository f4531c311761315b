/* notify.h - reports the state of the daemon to the service manager, in the datagrams that systemd defines. Main
 * thread. */
#ifndef PD_NOTIFY_H
#define PD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Sends a message such as "READY=1", "STOPPING=1" or "WATCHDOG=1" to the socket $NOTIFY_SOCKET, if that is set. A
 * path that begins with "@" is an abstract address. Returns false if the message could not be sent. */
bool pd_notify(const char *state);
/* Returns the interval in ms at which to tell the service manager's watchdog that the daemon lives: half of
 * $WATCHDOG_USEC. Returns 0 if there is no watchdog. */
uint64_t pd_notify_watchdog_ms(void);
/* Returns how many listening sockets the service manager has passed to this process ($LISTEN_FDS, $LISTEN_PID). Sets
 * *first to the first file descriptor. */
int pd_notify_sockets(int *first);

#endif
