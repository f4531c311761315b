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
/* A setting that names addresses to listen on, and who may reach them. */
typedef struct pd_reach {
    bool http;       /* the setting is http.listen; false: server.listen */
    bool open;       /* other machines may reach all addresses: server.insecure is set, or a token guards HTTP */
    bool identifies; /* clients of tls:// addresses prove who they are, so other machines may reach such addresses */
} pd_reach;

/* Checks that an address may be listened on. `secure`: it is of a tls:// address. PD_PERMISSION_DENIED: other machines
 * can reach it, and must not. */
int pd_reach_check(const pd_reach *reach, const struct sockaddr *address, socklen_t length, bool secure, pd_error *err);
/* Looks up the addresses of a host name. *list gets them; the caller frees it with freeaddrinfo(). For a Unix socket,
 * *list is NULL. PD_UNAVAILABLE: the host name is not known. Other errors are those of pd_reach_check. */
int pd_reach_resolve(const pd_reach *reach, const pd_address *address, struct addrinfo **list, pd_error *err);
/* Checks the value of the setting as pd_listen does, without opening a socket. http.listen may be "".
 * PD_INVALID_ARGUMENT: there is no address, there are more than PD_MAX_LISTENERS, the text is not an address, or has
 * tls:// for HTTP. Other errors are those of pd_reach_resolve. */
int pd_reach_check_setting(const pd_reach *reach, const char *listen, pd_error *err);

#endif
