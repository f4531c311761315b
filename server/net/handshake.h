/* handshake.h - connections on tls:// addresses until it is known who the peer is: bounded in time, memory and number.
 * Loop thread.
 *
 * A peer that has sent nothing, or only a part of its first message, costs a small struct: the kernel wakes the loop
 * when the message is whole. The arithmetic of handshakes runs on a thread of lower priority (handshake_thread.h), so
 * the loop never computes one, and a flood of them takes little from steps. A connection that is not through after
 * server.handshake_timeout is closed. There are at most server.max_connections of them, and few of those may have the
 * state that TLS keeps between two messages; beyond these limits the oldest one gives way, because an honest peer takes
 * milliseconds.
 *
 * When the handshake is complete, the conversation gets a connection whose peer is known. */
#ifndef PD_HANDSHAKE_H
#define PD_HANDSHAKE_H

struct pd_uvloop;

/* Begins a handshake on a connected, non-blocking socket, and takes ownership of it. */
void pd_handshake_begin(struct pd_uvloop *loop, int fd, const char *peer);
/* Closes connections whose time is over. Called several times a second. */
void pd_handshakes_tick(struct pd_uvloop *loop);
/* Closes all. Those that a thread works on end when it is done. */
void pd_handshakes_end(struct pd_uvloop *loop);

#endif
