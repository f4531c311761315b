/* tls_stream.h - encrypts the bytes of a transport (transport.h) by TLS 1.3, on a connected, non-blocking socket.
 *
 * The owner of the socket waits until the socket is ready, and then calls these functions. No function waits. A
 * connection begins with the handshake, and then carries bytes:
 *
 *     while ((step = pd_tls_handshake(stream, &err)) is PD_TLS_READ or PD_TLS_WRITE)
 *         wait until the socket can be read or written;
 *     pd_tls_receive(stream, ...), pd_tls_send(stream, ...)      like receive and send of a transport
 *
 * A stream belongs to one thread at a time (pd_tls_part). That thread must block or ignore SIGPIPE: OpenSSL uses
 * write(), which raises it. The caller still owns the socket, and closes it after pd_tls_stream_free. */
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
    PD_TLS_FAILED /* the connection cannot be used; the error says why */
} pd_tls_step;

/* Makes the stream of a socket. `host`: host name or IP address of the server, which the server's certificate must
 * contain; NULL: this side is the server. PD_NO_MEMORY. */
int pd_tls_stream_new(pd_tls_stream **out, pd_tls_context *context, int fd, const char *host, pd_error *err);
/* Frees the stream without telling the peer. Accepts NULL. */
void pd_tls_stream_free(pd_tls_stream *stream);

/* Continues the handshake, and returns its next step. May compute for a millisecond or more. Any thread may call it,
 * but only one at a time. Errors with PD_TLS_FAILED: PD_UNAUTHENTICATED: one side does not trust the other.
 * PD_UNAVAILABLE: the connection is broken, or the peer does not speak TLS 1.3. PD_NO_MEMORY: out of memory. */
pd_tls_step pd_tls_handshake(pd_tls_stream *stream, pd_error *err);
/* Sets *identity to the identity of the peer, after the handshake; to "anyone" if the peer has proved none. */
void pd_tls_identify(const pd_tls_stream *stream, pd_identity *identity);

/* Receive and send bytes. The results are those of `receive` and `send` in pd_transport_ops. Bytes that were sent may
 * still wait for the socket, up to 256 KiB (pd_tls_owes). While they wait, no more bytes are sent. */
ssize_t pd_tls_receive(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err);
ssize_t pd_tls_send(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err);
/* Prepares the stream for another thread, which may receive and send, until pd_tls_join ends that. The context's thread
 * calls both, and uses the stream in no other way between. */
void pd_tls_part(pd_tls_stream *stream);
void pd_tls_join(pd_tls_stream *stream);
/* Returns whether pd_tls_receive has something to return even if the socket is not readable: bytes that are in memory
 * already, or an error. */
bool pd_tls_has_more(const pd_tls_stream *stream);
/* Returns which events of the socket to wait for (a set of PD_ON_READ and others), if the owner waits for the events
 * `wanted` of the transport. After a peer has asked for a new key, OpenSSL must send its answer before it receives.
 * Until then, to receive means to wait for PD_ON_WRITE. */
unsigned pd_tls_events(const pd_tls_stream *stream, unsigned wanted);
/* Returns whether bytes that were sent wait for the socket. If so, call pd_tls_flush when the socket can be written.
 * Returns false on a broken connection. */
bool pd_tls_owes(const pd_tls_stream *stream);
/* Returns how many bytes of memory the stream uses for received bytes and for bytes to send: at most 272 KiB for each
 * of the two. */
size_t pd_tls_held(const pd_tls_stream *stream);
/* Sends bytes that wait for the socket. The next pd_tls_send or pd_tls_receive reports a broken connection. */
void pd_tls_flush(pd_tls_stream *stream);
/* Ends our side of the connection: as soon as no bytes wait for the socket, tells the peer that no more follow, and
 * shuts the socket for writing. Receiving continues. */
void pd_tls_shut(pd_tls_stream *stream);

#endif
