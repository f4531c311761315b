/* reach.h - resolves the addresses that a daemon listens on, and refuses addresses that other machines can reach.
 * Any thread. */
#ifndef PD_REACH_H
#define PD_REACH_H

#include <netdb.h>
#include <stdint.h>
#include <sys/socket.h>

#include "address.h"

#define PD_MAX_LISTENERS 16

/* Writes an address as text: "127.0.0.1:7070", "[::1]:7070" or "unix socket". */
void pd_reach_text(const struct sockaddr *address, socklen_t length, char *text, size_t size);
/* Returns a number that tells peers apart: the address for IPv4; the first 64 bits of the address for IPv6, since one
 * machine may have all addresses of such a network; 0 for Unix sockets. */
uint64_t pd_reach_origin(const struct sockaddr *address);
/* A setting with addresses to listen on, and who may reach them. */
typedef struct pd_reach {
    bool http;       /* the setting is http.listen; false: server.listen */
    bool open;       /* other machines may reach all addresses: server.insecure is set, or a token guards HTTP */
    bool identifies; /* clients of tls:// addresses prove who they are, so other machines may reach such addresses */
} pd_reach;

/* Checks that the daemon may listen on an address. `secure`: its connections use TLS. PD_PERMISSION_DENIED: other
 * machines can reach the address, but must not. */
int pd_reach_check(const pd_reach *reach, const struct sockaddr *address, socklen_t length, bool secure, pd_error *err);
/* Looks up the addresses of a host name, and checks each as pd_reach_check does. Sets *list to them; the caller frees
 * it with freeaddrinfo(). For a Unix socket, *list is NULL. PD_UNAVAILABLE: the host name is not known. Other errors
 * are those of pd_reach_check. */
int pd_reach_resolve(const pd_reach *reach, const pd_address *address, struct addrinfo **list, pd_error *err);
/* Checks the value of the setting as pd_listen does, without opening a socket. http.listen may be "".
 * PD_INVALID_ARGUMENT: there is no address, there are more than PD_MAX_LISTENERS, the text is not an address, or an
 * HTTP address has tls://. Other errors are those of pd_reach_resolve. */
int pd_reach_check_setting(const pd_reach *reach, const char *listen, pd_error *err);

#endif
