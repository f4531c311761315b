/* wire.h - the client's end of a connection in raw frames, for figures that need requests which the client library
 * does not send. Sockets are blocking. Any error ends the program with a message. */
#ifndef PD_WIRE_H
#define PD_WIRE_H

#include "message.h"

/* Connects to tcp://127.0.0.1:PORT. */
int wire_connect(const char *url);
void wire_send(int fd, const void *at, size_t bytes);
/* Sends a frame. The payload is zeros. */
void wire_ask(int fd, unsigned method, uint64_t id, const ProtobufCMessage *message, size_t payload_bytes);
/* Reads one answer and discards its payload. Returns the frame's prefix. An answer with an error ends the program.
 * `header` (may be NULL) receives the header, at most PD_MAX_HEADER_BYTES. */
pd_prefix wire_receive(int fd, uint8_t *header);
/* Works as wire_receive. An answer with an error is put into *refusal, whose code is PD_OK otherwise. */
pd_prefix wire_receive_any(int fd, uint8_t *header, pd_error *refusal);
/* Sends Hello as rank `rank` of a job. If `job` is "", the connection is an operator's. */
void wire_hello(int fd, const char *job, uint32_t rank, uint32_t world, uint64_t nonce);
/* Sends a Declare of n vectors (at most WIRE_DECLARES), named p and a number that counts up from `first`. `last`: no
 * more Declares follow. */
enum { WIRE_DECLARES = 1024 };
void wire_declare(int fd, uint64_t id, uint32_t first, uint32_t n, uint64_t elements, bool last);

#endif
