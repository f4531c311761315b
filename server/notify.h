/* notify.h - tells the service manager how we are: systemd's datagrams, without its library. Main thread. */
#ifndef PD_NOTIFY_H
#define PD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* "READY=1", "STOPPING=1", "WATCHDOG=1" to $NOTIFY_SOCKET ("@..." is abstract). Without one nothing happens. False: it could not be sent. */
bool     pd_notify(const char *state);
/* How often the watchdog wants to hear, in ms: half of $WATCHDOG_USEC; 0: not at all. */
uint64_t pd_notify_watchdog_ms(void);
/* Listening sockets passed to this process from descriptor *first on ($LISTEN_FDS, $LISTEN_PID); 0: none. */
int      pd_notify_sockets(int *first);

#endif
