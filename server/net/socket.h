/* socket.h - sends and receives the bytes of a connection over a non-blocking socket, which libuv watches. Loop
 * thread. */
#ifndef PD_SOCKET_H
#define PD_SOCKET_H

#include "tls_stream.h"
#include "transport.h"
#include "uvloop.h"

/* Gives a connected non-blocking socket to the conversation, which makes a connection of it; over TLS unless `tls`, the
 * socket's stream with a complete handshake, is NULL. PD_NO_MEMORY, also if `fd` is no socket: both are still the
 * caller's. */
int pd_socket_adopt(pd_uvloop *loop, int fd, pd_tls_stream *tls, const char *peer);
/* The same for a connection that speaks HTTP. `origin` is the peer's address as a number (pd_reach_origin). */
int pd_socket_adopt_http(pd_uvloop *loop, int fd, uint64_t origin);

/* ---- for tests, which give the transport's peer another identity before a connection is made of it ---- */

/* Makes a transport over a socket without TLS, which it then owns. Returns NULL if out of memory or `fd` is no
 * socket. */
pd_transport *pd_socket_new(pd_uvloop *loop, int fd);

#endif
