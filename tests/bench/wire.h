/* wire.h - the client's end of a connection in raw frames, for figures that do what the client library would not. Blocking sockets; whatever
 * goes wrong ends the program with a sentence. */
#ifndef PD_WIRE_H
#define PD_WIRE_H

#include "message.h"

/* Connects to tcp://127.0.0.1:PORT. */
int  wire_connect(const char *url);
void wire_send(int fd, const void *at, size_t bytes);
/* Sends a frame. The payload is zeros. */
void wire_ask(int fd, unsigned method, uint64_t id, const ProtobufCMessage *message, size_t payload_bytes);
/* Reads one answer and throws its payload away. Gives its prefix; an ERROR ends the program. `header` (or NULL) gets its header: PD_MAX_HEADER_BYTES. */
pd_prefix wire_hear(int fd, uint8_t *header);
/* Says Hello as rank `rank` of a job; job "": as an operator. */
void wire_hello(int fd, const char *job, uint32_t rank, uint32_t world, uint64_t nonce);
/* Sends a Declare of n vectors, n <= WIRE_DECLARES, named p and the numbers from `first` on. last: no more follow. */
enum { WIRE_DECLARES = 1024 };
void wire_declare(int fd, uint64_t id, uint32_t first, uint32_t n, uint64_t elements, bool last);

#endif
