/* identity.h - who a peer is, as far as its connection proves it.
 *
 * The transport knows it: a Unix socket from the kernel, TLS from the token or the certificate of the handshake. A peer
 * on plain TCP proves nothing. Roles (who may do what) are given to identities by their text. Pure functions. */
#ifndef PD_IDENTITY_H
#define PD_IDENTITY_H

#include <stdint.h>

typedef enum pd_identity_kind {
    PD_IDENTITY_NONE,        /* plain TCP, or TLS without a client's credentials: "anyone" */
    PD_IDENTITY_USER,        /* user id of a process on this machine: "user:1000" */
    PD_IDENTITY_TOKEN,       /* id of a token (a key that both sides have): "token:alice" */
    PD_IDENTITY_CERTIFICATE, /* name in the client's certificate: "certificate:worker-3.example.org" */
} pd_identity_kind;

typedef struct pd_identity {
    pd_identity_kind kind;
    char text[256]; /* as above; printable, and never longer than fits */
} pd_identity;

/* Fills in the identity of this kind and name, such as ("token", "alice") for "token:alice". The name of
 * PD_IDENTITY_NONE is not looked at.
 *
 * A name that is empty, too long, or not printable proves nothing that a role could be given to: then the identity is
 * "anyone". */
void pd_identity_set(pd_identity *identity, pd_identity_kind kind, const char *name);

#endif
