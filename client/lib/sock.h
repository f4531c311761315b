/* sock.h - sockets that never block, for the I/O thread of a client handle. */
#ifndef PD_SOCK_H
#define PD_SOCK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "address.h"
#include "tls_stream.h"
#include "transport.h"

struct addrinfo;

/* Connects to the address of the host that answers first (race.h), or to a Unix socket, for which `addresses` is not
 * read. Sets *fd to a connected socket that does not block and sends without delay. PD_CANCELLED: `stop_fd` became
 * readable, since the thread has to end. PD_UNAVAILABLE: no address could be connected; the error names the address and
 * the reason. */
int pd_sock_connect(int *fd, const pd_address *url, const struct addrinfo *addresses, int stop_fd, int timeout_ms,
                    pd_error *err);

/* Makes a transport (a connection for pump.h) from a connected, non-blocking socket, and from its stream of TLS, whose
 * handshake is complete, unless `tls` is NULL. Takes ownership of both. NULL: out of memory; the caller still owns
 * them. The transport never calls its `ready` callback:
 * the I/O thread finds events with poll(). */
pd_transport *pd_sock_transport(int fd, pd_tls_stream *tls);
/* Returns the descriptor of the transport's socket and the events that poll() has to wait for. */
struct pollfd pd_sock_poll(const pd_transport *transport);
/* Returns whether bytes are here that were decrypted and not received yet: poll() does not report them. */
bool pd_sock_has_more(const pd_transport *transport);
/* Translates the events that poll() found on the transport's socket into PD_ON_... flags. Writes what TLS still owes to
 * the socket. */
unsigned pd_sock_events(pd_transport *transport, const struct pollfd *polled);

#endif
