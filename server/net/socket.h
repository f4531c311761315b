/* socket.h - sends and receives the bytes of a connection over a non-blocking socket, which libuv watches. Loop
 * thread. */
#ifndef PD_SOCKET_H
#define PD_SOCKET_H

#include "transport.h"
#include "uvloop.h"

/* Makes a transport over a socket, which it then owns. Returns NULL if memory is out or `fd` is no socket; `fd` is
 * still the caller's then. */
pd_transport *pd_socket_new(pd_uvloop *loop, int fd);
/* Frees a transport that no connection has used, and leaves its socket open. */
void pd_socket_release(pd_transport *transport);

#endif
