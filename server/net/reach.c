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
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        from = 8; /* the last 4 of the 8 bytes from here on are the IPv4 address */
    for (size_t i = from; i < from + 8; i++) origin = origin << 8 | v6->sin6_addr.s6_addr[i];
    return from > 0 ? origin & UINT32_MAX : origin;
}

static const char *name_of(const pd_reach *reach)
{
    return reach->http ? "http.listen" : "server.listen";
}

int pd_reach_check(const pd_reach *reach, const struct sockaddr *address, socklen_t length, bool secure, pd_error *err)
{
    char text[80];

    if (reach->open || (secure && reach->identifies) || is_loopback(address)) return PD_OK;
    pd_reach_text(address, length, text, sizeof text);
    return pd_fail(
        err, PD_PERMISSION_DENIED, "%s: refusing to listen on %s: anyone who can reach it could %s", name_of(reach),
        text,
        reach->http ? "read the figures of jobs. Listen on 127.0.0.1, or set http.token to a file with a token that "
                      "requests must have"
                    : "read and change every job. Listen on 127.0.0.1, or on tls:// with tls.tokens or tls.client_ca, "
                      "or set server.insecure = yes (--insecure) if the network keeps untrusted peers out");
}

int pd_reach_resolve(const pd_reach *reach, const pd_address *address, struct addrinfo **list, pd_error *err)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    int found, rc = PD_OK;

    *list = NULL;
    if (address->local) return PD_OK;
    found = getaddrinfo(address->host[0] != '\0' ? address->host : NULL, address->port, &hints, list);
    if (found != 0)
        return pd_fail(err, PD_UNAVAILABLE, "%s: %s:%s: %s", name_of(reach), address->host, address->port,
                       gai_strerror(found));
    for (struct addrinfo *info = *list; info != NULL && rc == PD_OK; info = info->ai_next)
        rc = pd_reach_check(reach, info->ai_addr, info->ai_addrlen, address->secure, err);
    if (rc == PD_OK) return PD_OK;
    freeaddrinfo(*list);
    *list = NULL;
    return rc;
}

static int check_each(const pd_reach *reach, const pd_address *addresses, size_t n, pd_error *err)
{
    size_t sockets = 0;

    for (size_t i = 0; i < n; i++) {
        struct addrinfo *list;
        int rc;

        if (reach->http && addresses[i].secure)
            return pd_fail(
                err, PD_INVALID_ARGUMENT,
                "http.listen: %s:%s has tls://, which the HTTP listener does not speak: use a proxy in front of it",
                addresses[i].host, addresses[i].port);
        if ((rc = pd_reach_resolve(reach, &addresses[i], &list, err)) != PD_OK) return rc;
        sockets += list == NULL; /* a Unix socket has no list, and counts as one */
        for (struct addrinfo *info = list; info != NULL; info = info->ai_next) sockets++;
        if (list != NULL) freeaddrinfo(list);
    }
    if (sockets <= PD_MAX_LISTENERS) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %zu addresses: at most %d", name_of(reach), sockets,
                   PD_MAX_LISTENERS);
}

int pd_reach_check_setting(const pd_reach *reach, const char *listen, pd_error *err)
{
    pd_address *addresses;
    pd_error why;
    size_t n;
    int rc;

    if (reach->http && listen[0] == '\0') return PD_OK;
    rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, &why);
    if (rc != PD_OK) return pd_fail(err, rc, "%s: %.480s", name_of(reach), why.text);
    rc = check_each(reach, addresses, n, err);
    free(addresses);
    return rc;
}
