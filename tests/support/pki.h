/* pki.h - a public key infrastructure for tests: authorities, and the certificates that they sign, as files. */
#ifndef PKI_H
#define PKI_H

#include <stdint.h>
#include "tls_stream.h"
#include "token.h"

typedef struct pki_authority pki_authority;

/* Makes an authority, and writes its certificate to `path` (PEM) unless that is NULL. */
pki_authority *pki_new(const char *name, const char *path);
void pki_free(pki_authority *authority);
/* Writes a new certificate and its key. `names`: the subjectAltName in OpenSSL's form, such as
 * "DNS:localhost,IP:127.0.0.1"; NULL: none. It is valid until `days` days from now; less than 0: it has expired. */
void pki_issue(const pki_authority *authority, const char *names, int days, const char *certificate, const char *key);
/* Does the same with another common name. */
void pki_issue_common(const pki_authority *authority, const char *common, const char *names, int days,
                      const char *certificate, const char *key);
/* Writes the authority's list of revoked certificates. It has the certificate in the file `revoked`; NULL: it is empty.
 * It is valid until `days` days from now; less than 0: it has expired. */
void pki_revoke(const pki_authority *authority, const char *revoked, int days, const char *path);
/* Writes a text to a file with this mode. */
void pki_write(const char *path, const char *text, unsigned mode);
/* Writes a file of tokens with mode 600: one line, or two unless `second` is NULL. */
void pki_write_tokens(const char *path, const char *first, const char *second);

/* Both sides of a TLS connection over a pair of sockets, on one thread: a test lets them act turn by turn.
 *
 *     CASE: cmocka_unit_test_setup_teardown(test, tls_ends_set_up, tls_ends_tear_down)
 *     tls_ends_with_token(); pd_tls_send(tls_ends.stream[TLS_CLIENT], ...) */
enum { TLS_SERVER, TLS_CLIENT, TLS_BYTES = 200000 };

typedef struct pd_tls_ends {
    char folder[64];
    char token[PD_TOKEN_LINE], tokens[96];
    int fd[2];
    pd_tls_context *context[2];
    pd_tls_stream *stream[2];
    pd_tls_step step[2];
    pd_error err[2];
    uint8_t sent[TLS_BYTES], got[TLS_BYTES];
} pd_tls_ends;

/* The two sides of the test that runs. */
extern pd_tls_ends tls_ends;

/* Makes a folder, a file of tokens and the sockets; removes them. */
int tls_ends_set_up(void **state);
int tls_ends_tear_down(void **state);
/* Returns the path of a file in the folder. It stays valid for the next seven calls. */
const char *tls_ends_path(const char *name);
/* Makes both sides; `host` is the name that the client expects. */
void tls_ends_make(const pd_tls_files *server, const pd_tls_files *client, const char *host);
/* Frees both sides. */
void tls_ends_drop(void);
/* Lets both sides take their steps of the handshake until each is through or has failed. */
void tls_ends_shake_hands(void);
/* Makes both sides with the same token, and completes their handshake. */
void tls_ends_with_token(void);
/* Fails the test unless the handshake of a side has failed with this text. */
void tls_ends_expect_failure(int side, const char *why);
/* Receives once into a buffer. Fails the test unless this gives an error with this text. */
void tls_ends_expect_receive_failure(int side, const char *why);
/* Fails the test unless a side knows its peer by this text. */
void tls_ends_expect_identity(int side, const char *text);

#endif
