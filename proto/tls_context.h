/* tls_context.h - the keys and rules by which one side of TLS makes its connections.
 *
 * TLS 1.3 only, with cipher suites of SHA-256, without session tickets, early data, compression and renegotiation.
 * Files are read when the context is made, so a changed file takes effect with the next context. Open connections keep
 * the context that they began with.
 *
 * The context belongs to one thread at a time. Handshakes may run on other threads, which only read it. */
#ifndef PD_TLS_CONTEXT_H
#define PD_TLS_CONTEXT_H

#include <stdbool.h>

#include "paramd/error.h"

/* The files by which one side proves its identity, and checks that of its peers. A path that is NULL or "" is not
 * given. */
typedef struct pd_tls_files {
    const char *certificate; /* this side's certificate and its chain, PEM */
    const char *key;         /* private key of the certificate, PEM */
    const char *ca;          /* certificates of the authorities that sign the peers' certificates, PEM */
    const char *tokens;      /* file of tokens (token.h) */
    const char *crl;         /* only for a server: lists of the certificates that the authorities in `ca` have revoked,
                              * PEM */
} pd_tls_files;

typedef struct pd_tls_context pd_tls_context;

/* Makes the context of a server. It needs a certificate or tokens. If there are tokens or a CA, every client must prove
 * its identity by a token or by a certificate of that CA. Errors name the setting, such as "tls.key":
 *
 *   PD_NOT_FOUND            a file cannot be read
 *   PD_PERMISSION_DENIED    others can read a file with a secret
 *   PD_INVALID_ARGUMENT     a file is not what it should be; neither certificate nor tokens are given, a certificate
 *                           without its key, or lists of revoked certificates without their authorities
 *   PD_UNIMPLEMENTED        OpenSSL is not installed
 *   PD_NO_MEMORY */
int pd_tls_server(pd_tls_context **out, const pd_tls_files *files, pd_error *err);
/* Makes the context of a client. With a token, client and server prove their identities to each other by it. Without
 * one, the client checks the server's certificate and name against the CA, or the system's authorities if none is
 * given. Errors are those of pd_tls_server, but name the environment variables, such as PARAMD_TOKEN_FILE. */
int pd_tls_client(pd_tls_context **out, const pd_tls_files *files, pd_error *err);
/* The version of OpenSSL that tls:// addresses use. */
typedef struct pd_tls_version {
    unsigned major, minor, patch;
} pd_tls_version;

/* Loads OpenSSL to find its version. PD_UNIMPLEMENTED: OpenSSL is not installed. */
int pd_tls_find_version(pd_tls_version *out, pd_error *err);
/* Returns whether a server's context makes every client prove its identity. */
bool pd_tls_identifies(const pd_tls_context *context);
/* pd_tls_ref adds a reference to a context, and returns the context. pd_tls_unref removes a reference, and frees the
 * context with the last one; it accepts NULL. */
pd_tls_context *pd_tls_ref(pd_tls_context *context);
void pd_tls_unref(pd_tls_context *context);

#endif
