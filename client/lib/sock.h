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

/* Connects to the address of the host that answers first (connect.h), or to a Unix socket, for which `addresses` is not
 * read. Sets *fd to a connected socket that does not block and sends without delay. PD_CANCELLED: `stop_fd` became
 * readable, since the thread must end or the shard has moved. PD_UNAVAILABLE: no address could be connected; the error
 * names the address and the reason. */
int pd_sock_connect(int *fd, const pd_address *url, const struct addrinfo *addresses, int stop_fd, int timeout_ms,
                    pd_error *err);

/* Makes a transport (a connection for pump.h) from a connected, non-blocking socket and its TLS stream, whose handshake
 * is complete; `tls` NULL: no encryption. Takes ownership of both. NULL: out of memory; the caller still owns both. The
 * transport never calls its `ready` callback: the I/O thread finds events with poll(). */
pd_transport *pd_sock_transport(int fd, pd_tls_stream *tls);
/* Returns the descriptor of the transport's socket and the events that poll() must wait for. */
struct pollfd pd_sock_poll(const pd_transport *transport);
/* Returns whether the transport has decrypted bytes that the pump has not received yet: poll() does not report them. */
bool pd_sock_has_more(const pd_transport *transport);
/* Translates the events that poll() found on the transport's socket into PD_ON_... flags. Also writes bytes of TLS that
 * wait for the socket. */
unsigned pd_sock_events(pd_transport *transport, const struct pollfd *polled);

/* The files for tls:// addresses. */
typedef struct pd_secure {
    char *paths[4]; /* paths of the certificate, its key, the authorities and the token; NULL: no such file */
} pd_secure;

/* Returns the files whose paths it has. */
pd_tls_files pd_secure_files(const pd_secure *secure);
/* Copies the paths. If one of the n addresses is a tls:// address, reads the files once, so that a wrong file is found
 * now. Errors are those of pd_tls_client. */
int pd_secure_open(pd_secure *out, const pd_tls_files *files, const pd_address *urls, size_t n, pd_error *err);
/* Frees the paths. Accepts zeroed memory. */
void pd_secure_close(pd_secure *secure);
/* Makes the TLS handshake on a connected socket, and *out, the stream. PD_CANCELLED: `stop_fd` became readable.
 * PD_DEADLINE_EXCEEDED: it took longer than `timeout_ms`. Other errors are those of pd_tls_client and
 * pd_tls_handshake. */
int pd_secure_connect(const pd_secure *secure, pd_tls_stream **out, int fd, const char *host, int stop_fd,
                      int timeout_ms, pd_error *err);

#endif
