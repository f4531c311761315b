/* tls_wire.h - carries the records of a TLS connection between OpenSSL and the socket, many with one system call.
 *
 * OpenSSL by itself makes three system calls for each record of 16 KiB: one for its head, one for the rest, one to
 * write it. A wire receives as many bytes as are here, up to 256 KiB, and keeps those that OpenSSL did not ask for. It
 * collects the records that OpenSSL writes, and sends them together. Where the kernel does TLS itself (kTLS), OpenSSL
 * must have the socket, and no wire is used in that direction.
 *
 * Its two buffers exist only while bytes are in them: the connections of a context take turns with a few. */
#ifndef PD_TLS_WIRE_H
#define PD_TLS_WIRE_H

#include <stdbool.h>

#include "tls_inside.h"

typedef struct pd_tls_wire pd_tls_wire;

/* Makes the method by which OpenSSL calls the wires of a context. PD_NO_MEMORY. */
int pd_tls_wire_open(pd_tls_context *context, pd_error *err);
/* Frees the method and the buffers that no wire has. All wires must be freed before. */
void pd_tls_wire_close(pd_tls_context *context);

/* Puts a wire between OpenSSL and a socket whose handshake is complete. Free it after the SSL. PD_NO_MEMORY. */
int pd_tls_wire_new(pd_tls_wire **out, pd_tls_context *context, SSL *ssl, int fd, pd_error *err);
/* Frees a wire. Accepts NULL. */
void pd_tls_wire_free(pd_tls_wire *wire);

/* Must be called before a function of OpenSSL that reads or writes: OpenSSL's callbacks, which do not get our data,
 * find the wire on this thread. */
void pd_tls_wire_use(pd_tls_wire *wire);
/* Notes that the socket may have bytes again. Between two calls, a wire that has emptied the socket asks it no more. */
void pd_tls_wire_ask(pd_tls_wire *wire);
/* Gives the buffer for receiving back, if it is empty. */
void pd_tls_wire_rest(pd_tls_wire *wire);
/* Returns whether a whole record is in the buffer. Call it when OpenSSL has read all of the record before. */
bool pd_tls_wire_has_record(const pd_tls_wire *wire);
/* Returns whether the next record finds room. If the buffer is nearly full, it is sent first. */
bool pd_tls_wire_has_room(pd_tls_wire *wire);
/* Returns whether OpenSSL writes records into the wire. false: the kernel encrypts (kTLS), and its key cannot
 * change. */
bool pd_tls_wire_sends(const pd_tls_wire *wire);
/* Returns whether records wait for the socket. */
bool pd_tls_wire_owes(const pd_tls_wire *wire);
/* Returns the bytes of memory of the buffers that the wire uses now. */
size_t pd_tls_wire_held(const pd_tls_wire *wire);
/* Sends the records that wait, as far as the socket takes them. Returns 0, or the errno of a broken socket. */
int pd_tls_wire_flush(pd_tls_wire *wire);

#endif
