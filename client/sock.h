/* sock.h - addresses, and sockets that never block. Used by the I/O thread, except the parser. */
#ifndef PD_SOCK_H
#define PD_SOCK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "transport.h"

#define PD_DEFAULT_PORT "7070"

/* An address: "tcp://host:port", "tcp://[::1]:7070" (":7070" may be left out), or "unix:///path". */
typedef struct pd_url {
    bool local;                     /* a Unix socket */
    char host[256];                 /* name or number; the path of a Unix socket */
    char port[8];
} pd_url;

/* Parses addresses separated by commas. Gives *out (free() it). PD_INVALID_ARGUMENT: the error says which one is
 * wrong. */
int pd_urls_parse(pd_url **out, size_t *n, const char *text, pd_error *err);

/* Looks the name up and tries its addresses in turn, each for at most `timeout_ms`. Gives *fd: non-blocking, TCP
 * without delay. PD_CANCELLED: `stop_fd` is readable. PD_UNAVAILABLE: the error says to which address and why. */
int pd_sock_connect(int *fd, const pd_url *url, int stop_fd, int timeout_ms, pd_error *err);

/* Makes the transport of a connected, non-blocking socket, and takes the socket. NULL: out of memory, the socket is
 * still the caller's. Its `ready` is never called: the owner polls. */
pd_transport *pd_sock_transport(int fd);
/* Returns the descriptor and the events to poll for. */
struct pollfd pd_sock_poll(const pd_transport *transport);
/* Returns the events that poll() has found, as PD_ON_... */
unsigned      pd_sock_events(const struct pollfd *polled);

#endif
