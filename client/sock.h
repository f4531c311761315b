/* sock.h - addresses, and sockets that never block. I/O thread, but for the parsing. */
#ifndef PD_SOCK_H
#define PD_SOCK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "transport.h"

#define PD_DEFAULT_PORT "7070"

/* "tcp://host:port", "tcp://[::1]:7070" (":7070" may be left out), "unix:///path". */
typedef struct pd_url {
    bool local;                     /* a Unix socket */
    char host[256];                 /* name or number; the path of a Unix socket */
    char port[8];
} pd_url;

/* Several, separated by commas. Gives *out (free() it). PD_INVALID_ARGUMENT: which one, and what was expected. */
int pd_urls_parse(pd_url **out, size_t *n, const char *text, pd_error *err);

/* Looks the name up and tries its addresses in turn, each for at most `timeout_ms`. Ends with PD_CANCELLED when `stop_fd` becomes readable.
 * Gives *fd: non-blocking, TCP without delay. PD_UNAVAILABLE: the text says to whom and why. */
int pd_sock_connect(int *fd, const pd_url *url, int stop_fd, int timeout_ms, pd_error *err);

/* The transport of a connected, non-blocking socket, which it takes. NULL: out of memory, the socket is still the caller's. Its `ready` is never called:
 * whoever owns it polls what it watches. */
pd_transport *pd_sock_transport(int fd);
struct pollfd pd_sock_poll(const pd_transport *transport);
unsigned      pd_sock_events(const struct pollfd *polled);      /* what poll() has found, as PD_ON_... */

#endif
