/* secure.h - makes connections to tls:// addresses: handshakes, with the keys in the files that the user has named.
 *
 * The files are read for each connection. So a worker goes on with a new token or certificate when its connection
 * breaks, and a file that is being replaced is read again a moment later. OpenSSL is loaded when the first tls://
 * address is used. */
#ifndef PD_SECURE_H
#define PD_SECURE_H

#include "address.h"
#include "tls_stream.h"

typedef struct pd_secure {
    char *paths[4]; /* of the certificate, its key, the authorities and the token; NULL: none */
} pd_secure;

/* Copies the paths. If one of the n addresses is a tls:// address, reads the files once, so that a wrong file is found
 * now. Errors are those of pd_tls_client. */
int pd_secure_open(pd_secure *out, const pd_tls_files *files, const pd_address *urls, size_t n, pd_error *err);
/* Frees the paths. Accepts zeroed memory. */
void pd_secure_close(pd_secure *secure);
/* Makes the handshake on a connected socket, within `timeout_ms`. PD_CANCELLED: `stop_fd` became readable.
 * PD_DEADLINE_EXCEEDED. Other errors are those of pd_tls_client and pd_tls_handshake. */
int pd_secure_connect(const pd_secure *secure, pd_tls_stream **out, int fd, const char *host, int stop_fd,
                      int timeout_ms, pd_error *err);

#endif
