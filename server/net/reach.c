/* reach.c - resolves the addresses that a daemon listens on, and refuses addresses that other machines can reach. */
#include "reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    if (address->sa_family == AF_UNIX) return true;
    if (address->sa_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

void pd_reach_text(const struct sockaddr *address, socklen_t length, char *text, size_t size)
{
    char host[64], port[16];

    if (address->sa_family == AF_UNIX)
        snprintf(text, size, "unix socket");
    else if (getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(text, size, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(text, size, "?");
}

uint64_t pd_reach_origin(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    size_t from = 0;
    uint64_t origin = 0;

    if (address->sa_family == AF_INET) return ntohl(v4->sin_addr.s_addr);
    if (address->sa_family != AF_INET6) return 0;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) from = 8; /* the last 4 of these 8 bytes are the address of IPv4 */
    for (size_t i = from; i < from + 8; i++) origin = origin << 8 | v6->sin6_addr.s6_addr[i];
    return from > 0 ? origin & UINT32_MAX : origin;
}

int pd_reach_check(const struct sockaddr *address, socklen_t length, bool insecure, pd_error *err)
{
    char text[80];

    if (insecure || is_loopback(address)) return PD_OK;
    pd_reach_text(address, length, text, sizeof text);
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "refusing to listen on %s: anyone who can reach it could read and change every job. Listen on "
                   "127.0.0.1, or on tls:// with tls.tokens or tls.client_ca, or set server.insecure = yes "
                   "(--insecure) if the network keeps untrusted peers out",
                   text);
}

int pd_reach_resolve(const pd_address *address, bool insecure, bool identifies, struct addrinfo **list, pd_error *err)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    int found, rc = PD_OK;

    *list = NULL;
    if (address->local) return PD_OK;
    found = getaddrinfo(address->host[0] != '\0' ? address->host : NULL, address->port, &hints, list);
    if (found != 0)
        return pd_fail(err, PD_UNAVAILABLE, "server.listen: %s:%s: %s", address->host, address->port,
                       gai_strerror(found));
    for (struct addrinfo *info = *list; info != NULL && rc == PD_OK; info = info->ai_next)
        rc = pd_reach_check(info->ai_addr, info->ai_addrlen, insecure || (address->secure && identifies), err);
    if (rc == PD_OK) return PD_OK;
    freeaddrinfo(*list);
    *list = NULL;
    return rc;
}

/* Fails because other machines can reach an address of the HTTP listener. */
static int refuse_http(const char *address, pd_error *err)
{
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "http.listen: refusing to listen on %.200s: anyone who can reach it could read the figures of jobs. "
                   "Listen on 127.0.0.1, or set http.token to a file with a token that requests must have",
                   address);
}

int pd_reach_check_http_socket(const struct sockaddr *address, socklen_t length, bool guarded, pd_error *err)
{
    char text[80];

    if (pd_reach_check(address, length, guarded, NULL) == PD_OK) return PD_OK;
    pd_reach_text(address, length, text, sizeof text);
    return refuse_http(text, err);
}

int pd_reach_resolve_http(const pd_address *address, bool guarded, struct addrinfo **list, pd_error *err)
{
    int rc = pd_reach_resolve(address, guarded, false, list, err);
    char text[160];

    snprintf(text, sizeof text, "%.100s:%.50s", address->host[0] != '\0' ? address->host : "*", address->port);
    if (rc == PD_PERMISSION_DENIED) return refuse_http(text, err);
    if (rc == PD_UNAVAILABLE) return pd_fail(err, rc, "http.listen: the host of %s is not known", text);
    return rc;
}

static size_t count_sockets(const struct addrinfo *list)
{
    size_t n = list == NULL; /* a Unix socket has no list of addresses, and counts as one */

    for (; list != NULL; list = list->ai_next) n++;
    return n;
}

static int check_each(const pd_address *addresses, size_t n, bool insecure, bool identifies, pd_error *err)
{
    size_t sockets = 0;

    for (size_t i = 0; i < n; i++) {
        struct addrinfo *list;
        int rc = pd_reach_resolve(&addresses[i], insecure, identifies, &list, err);

        if (rc != PD_OK) return rc;
        sockets += count_sockets(list);
        if (list != NULL) freeaddrinfo(list);
    }
    if (sockets <= PD_MAX_LISTENERS) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "server.listen: %zu addresses, at most %d are possible", sockets,
                   PD_MAX_LISTENERS);
}

int pd_reach_check_listen(const char *listen, bool insecure, bool identifies, pd_error *err)
{
    pd_address *addresses;
    pd_error why;
    size_t n;
    int rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, &why);

    if (rc != PD_OK) return pd_fail(err, rc, "server.listen: %.480s", why.text);
    rc = check_each(addresses, n, insecure, identifies, err);
    free(addresses);
    return rc;
}

static int check_http(const pd_address *addresses, size_t n, bool guarded, pd_error *err)
{
    int rc = PD_OK;

    if (n > PD_MAX_LISTENERS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "http.listen: %zu addresses, at most %d are possible", n,
                       PD_MAX_LISTENERS);
    for (size_t i = 0; i < n && rc == PD_OK; i++) {
        struct addrinfo *list;
        if (addresses[i].secure)
            return pd_fail(
                err, PD_INVALID_ARGUMENT,
                "http.listen: %s:%s has tls://, which the HTTP listener does not speak: use a proxy in front of it",
                addresses[i].host, addresses[i].port);
        rc = pd_reach_resolve_http(&addresses[i], guarded, &list, err);
        if (list != NULL) freeaddrinfo(list);
    }
    return rc;
}

int pd_reach_check_http(const char *listen, bool guarded, pd_error *err)
{
    pd_address *addresses;
    pd_error why;
    size_t n;
    int rc;

    if (listen[0] == '\0') return PD_OK;
    rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, &why);
    if (rc != PD_OK) return pd_fail(err, rc, "http.listen: %.480s", why.text);
    rc = check_http(addresses, n, guarded, err);
    free(addresses);
    return rc;
}
