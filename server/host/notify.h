/* notify.h - reports the state of the daemon to the service manager, in the datagrams that systemd defines, and finds
 * the sockets that the service manager has opened. Reads environment variables, which must not change while threads
 * run. */
#ifndef PD_NOTIFY_H
#define PD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon_config.h"

/* Largest number of listening sockets that the daemon takes over from the service manager. */
#define PD_NOTIFY_SOCKETS 16

/* Sends a message such as "READY=1", "STOPPING=1" or "WATCHDOG=1" to the socket $NOTIFY_SOCKET, if that is set. A
 * path that begins with "@" is an abstract address. Returns false if the message could not be sent. */
bool pd_notify(const char *state);
/* Returns the interval in ms at which to ping the service manager's watchdog: half of $WATCHDOG_USEC. Returns 0 if
 * there is no watchdog. */
uint64_t pd_notify_watchdog_ms(void);
/* Stores in `sockets` the listening sockets that the service manager has passed to this process ($LISTEN_FDS,
 * $LISTEN_PID). Returns their number; only the first PD_NOTIFY_SOCKETS are stored. The name of a socket
 * ($LISTEN_FDNAMES, which systemd sets from FileDescriptorName= of the socket's unit) gives the protocol of its peers:
 * "tls" means frames over TLS, "http" means HTTP, any other name means plain frames. */
size_t pd_notify_sockets(pd_given_socket sockets[PD_NOTIFY_SOCKETS]);
/* Returns whether the service manager has passed a socket with this use to this process. */
bool pd_notify_has_socket(pd_socket_use use);

#endif
