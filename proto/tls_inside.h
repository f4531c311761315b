/* tls_inside.h - the members of a TLS context, for the files tls_*.c alone. */
#ifndef PD_TLS_INSIDE_H
#define PD_TLS_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "tls_library.h"
#include "token.h"

typedef struct pd_tls_context pd_tls_context;

typedef struct pd_tls_buffer pd_tls_buffer;

struct pd_tls_context {
    pd_tls_library library;
    SSL_CTX *ssl;
    BIO_METHOD *method;   /* of the wires (tls_wire.h) */
    pd_tls_buffer *spare; /* buffers that no wire uses now */
    unsigned n_spare;
    pd_tokens tokens;     /* of a server: of all workers; of a client: its own */
    uint64_t key_records; /* most records that a connection sends with one key */
    bool serves;
    bool wants_identity; /* a server's: clients must prove who they are */
    uint32_t refs;
};

/* What a callback of OpenSSL learns during the handshake of a connection. */
typedef struct pd_tls_seen {
    const pd_tls_context *context;
    const pd_token *token; /* the token that names the peer; NULL: there is none, or the server does not know it */
} pd_tls_seen;

/* Calls SSL_do_handshake. Meanwhile the callbacks of OpenSSL, which do not get our data, find `seen` on this thread. */
int pd_tls_do_handshake(pd_tls_seen *seen, SSL *ssl);

#endif
