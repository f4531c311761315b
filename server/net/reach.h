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
/* Returns a number by which peers are told apart: the address of IPv4, the network of IPv6, its first 64 bits, since
 * one machine may have all addresses of it, and 0 for Unix sockets. */
uint64_t pd_reach_origin(const struct sockaddr *address);
/* Checks whether other machines can reach an address. PD_PERMISSION_DENIED: they can, and `insecure` is not set. */
int pd_reach_check(const struct sockaddr *address, socklen_t length, bool insecure, pd_error *err);
/* The same for an address of the HTTP listener. `guarded` says whether other machines may reach it. */
int pd_reach_check_http_socket(const struct sockaddr *address, socklen_t length, bool guarded, pd_error *err);
/* Looks up the addresses of a host name. *list gets them; the caller frees it with freeaddrinfo(). For a Unix socket,
 * *list is NULL. `identifies`: clients of tls:// addresses prove who they are, so other machines may reach such an
 * address without `insecure`. Errors:
 *
 *   PD_UNAVAILABLE        the host name is not known
 *   PD_PERMISSION_DENIED  other machines can reach an address, and `insecure` is not set */
int pd_reach_resolve(const pd_address *address, bool insecure, bool identifies, struct addrinfo **list, pd_error *err);
/* Checks all addresses of the setting server.listen as pd_listen does, without opening a socket. PD_INVALID_ARGUMENT:
 * there is no address, there are more than PD_MAX_LISTENERS, or the text is not an address. Other errors are those of
 * pd_reach_resolve. */
int pd_reach_check_listen(const char *listen, bool insecure, bool identifies, pd_error *err);
/* Checks all addresses of the setting http.listen, without opening a socket; "": there are none. `guarded` says whether
 * other machines may reach them. Errors are those of pd_reach_check_listen. */
int pd_reach_check_http(const char *listen, bool guarded, pd_error *err);
/* Looks up the addresses of a host name for the HTTP listener, as pd_reach_resolve does. */
int pd_reach_resolve_http(const pd_address *address, bool guarded, struct addrinfo **list, pd_error *err);

#endif
