/* tls_stream.h - TLS 1.3 on one connected, non-blocking socket: the bytes of a transport (transport.h), encrypted.
 *
 * The owner of the socket waits for it, and calls these functions when it is ready. No function waits. First comes the
 * handshake, then bytes:
 *
 *     while ((step = pd_tls_handshake(stream, &err)) is PD_TLS_READ or PD_TLS_WRITE) wait until the socket is so;
 *     pd_tls_receive, pd_tls_send as receive and send of a transport
 *
 * A stream belongs to one thread at a time. That thread must block or ignore SIGPIPE: OpenSSL writes to the socket as
 * to a file. The socket stays its owner's, who closes it after pd_tls_stream_free. */
#ifndef PD_TLS_STREAM_H
#define PD_TLS_STREAM_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "transport.h"
#include "tls_context.h"

typedef struct pd_tls_stream pd_tls_stream;

typedef enum pd_tls_step {
    PD_TLS_DONE,  /* the handshake is complete: bytes may be sent and received */
    PD_TLS_READ,  /* call again when the socket can be read */
    PD_TLS_WRITE, /* call again when the socket can be written */
    PD_TLS_FAILED /* the connection is of no use; the error says why */
} pd_tls_step;

/* Makes the stream of a socket. `host`: the name or number by which a client knows the server, which its certificate
 * must have; NULL for a server's side. PD_NO_MEMORY. */
int pd_tls_stream_new(pd_tls_stream **out, pd_tls_context *context, int fd, const char *host, pd_error *err);
/* Frees the stream without a word to the peer. Accepts NULL. */
void pd_tls_stream_free(pd_tls_stream *stream);

/* Goes on with the handshake. May take a millisecond or more of computing. Any thread may call it, one at a time.
 * Errors: PD_UNAUTHENTICATED: one side does not trust the other; PD_UNAVAILABLE: the connection is broken, or the peer
 * does not speak TLS 1.3. */
pd_tls_step pd_tls_handshake(pd_tls_stream *stream, pd_error *err);
/* Tells who the peer is, after the handshake. */
void pd_tls_identify(const pd_tls_stream *stream, pd_identity *identity);

/* Receives and sends bytes, with the results of pd_transport_ops. Bytes that were sent may still wait for the socket:
 * up to 256 KiB (pd_tls_owes). While they wait, no more bytes are sent. */
ssize_t pd_tls_receive(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err);
ssize_t pd_tls_send(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err);
/* Returns whether bytes are here already that pd_tls_receive has not returned yet, so that the socket need not become
 * readable for them. */
bool pd_tls_has_more(const pd_tls_stream *stream);
/* Returns the events of the socket to wait for, so that the events of the transport that its owner wants can happen.
 * Receiving waits for PD_ON_WRITE while OpenSSL must send first: it answers a peer that asks for another key. */
unsigned pd_tls_events(const pd_tls_stream *stream, unsigned wanted);
/* Returns whether bytes wait for the socket: call pd_tls_flush when it can be written. On a broken connection none
 * wait. */
bool pd_tls_owes(const pd_tls_stream *stream);
/* Returns the bytes of memory in which received bytes and bytes to send wait: at most 272 KiB each way. */
size_t pd_tls_held(const pd_tls_stream *stream);
/* Writes bytes that wait. A broken connection is reported by the next pd_tls_send or pd_tls_receive. */
void pd_tls_flush(pd_tls_stream *stream);
/* Ends our side: tells the peer that nothing follows, and shuts the socket for writing, as soon as nothing waits for
 * it. Receiving continues. */
void pd_tls_shut(pd_tls_stream *stream);

#endif
