/* address.h - network addresses as people write them: one syntax for the daemon, the client library and paramctl.
 *
 *     tcp://host:port   host:port   [IPv6]:port   :port (this machine, 127.0.0.1)
 *     tls://host:port   (TCP with TLS: tls_stream.h)
 *     unix:///path
 *
 * A client's address may leave out the port, which is then 7070. A server's address must name the port; port 0 asks for
 * a free one. A server may write *:port to listen on every interface. Any thread may call these functions. */
#ifndef PD_ADDRESS_H
#define PD_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "paramd/error.h"

#define PD_DEFAULT_PORT "7070"
#define PD_ADDRESS_TEXT 320 /* bytes that suffice for the text of any address, with its terminating zero */

typedef enum pd_address_use { PD_TO_CONNECT, PD_TO_LISTEN } pd_address_use;

/* A parsed address. */
typedef struct pd_address {
    bool local;     /* the address is that of a Unix socket */
    bool secure;    /* the connection speaks TLS */
    char host[256]; /* host name or IP address; "": every interface; for a Unix socket: its path */
    char port[8];   /* port number in digits, without leading zeros; "": a Unix socket */
} pd_address;

/* Parses a list of addresses, which are separated by commas with or without blanks. *out gets an array of *n addresses;
 * the caller frees it with free(). PD_INVALID_ARGUMENT: the error says which address is wrong, and what was expected.
 * PD_NO_MEMORY: out of memory. After an error *out is not set. */
int pd_addresses_parse(pd_address **out, size_t *n, const char *text, pd_address_use use, pd_error *err);
/* Writes an address as text in the form that every program reads: "tcp://host:port", "tcp://[IPv6]:port",
 * "tls://host:port", "unix:///path". Returns `text`, which has PD_ADDRESS_TEXT bytes. */
const char *pd_address_text(const pd_address *address, char *text);

#endif
