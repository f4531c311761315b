/* address.c - parses network addresses, and writes them as text. */
#include "address.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum { MAX_PORT = 65535 };

/* A section of the text of an address: where it begins, and its length in bytes. */
typedef struct part {
    const char *at;
    size_t n;
} part;

static bool take_prefix(part *p, const char *prefix)
{
    size_t n = strlen(prefix);

    if (p->n < n || memcmp(p->at, prefix, n) != 0) return false;
    p->at += n;
    p->n -= n;
    return true;
}

static bool copy(char *to, size_t size, part from)
{
    if (from.n == 0 || from.n >= size || memchr(from.at, '\0', from.n) != NULL) return false;
    memcpy(to, from.at, from.n);
    to[from.n] = '\0';
    return true;
}

static int bad(part whole, pd_address_use use, const char *why, pd_error *err)
{
    bool listens = use == PD_TO_LISTEN;

    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "address \"%.*s\": %s; expected host:port, [IPv6]:port, :port%s, tcp://host:port, tls://host:port or "
        "unix:///path, for example %s",
        (int)(whole.n < 200 ? whole.n : 200), whole.at, why, listens ? ", *:port" : "",
        listens ? "127.0.0.1:7070" : "tcp://127.0.0.1:7070");
}

/* Checks the port of an address, and stores it in *address. Returns NULL, or a sentence that says what is wrong. */
static const char *parse_port(pd_address *address, part text, pd_address_use use)
{
    uint32_t port = 0;

    if (text.n == 0) return "the port is missing after the colon";
    for (size_t i = 0; i < text.n; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return "the port is not a number";
        port = port * 10 + (uint32_t)(text.at[i] - '0');
        if (port > MAX_PORT) return "the port is larger than 65535";
    }
    if (port == 0 && use == PD_TO_CONNECT) return "port 0 is for servers only";
    snprintf(address->port, sizeof address->port, "%u", (unsigned)port);
    return NULL;
}

/* Splits an address "[IPv6]:port" into the text in brackets and the rest, ":port". Returns NULL, or a sentence that
 * says what is wrong. */
static const char *split_brackets(part text, part *host, part *rest)
{
    const char *end = memchr(text.at, ']', text.n);

    if (end == NULL) return "the ] is missing";
    *host = (part){ text.at + 1, (size_t)(end - text.at) - 1 };
    *rest = (part){ end + 1, text.n - host->n - 2 };
    if (memchr(host->at, ':', host->n) == NULL) return "brackets are for IPv6 addresses";
    return NULL;
}

/* Splits an address "host:port" into the host and the rest, ":port". Returns NULL, or a sentence that says what is
 * wrong. */
static const char *split_plain(part text, part *host, part *rest)
{
    const char *colon = memchr(text.at, ':', text.n);

    *host = (part){ text.at, colon != NULL ? (size_t)(colon - text.at) : text.n };
    *rest = (part){ text.at + host->n, text.n - host->n };
    if (rest->n > 1 && memchr(rest->at + 1, ':', rest->n - 1) != NULL)
        return "it has several colons (an IPv6 address stands in brackets: [::1]:7070)";
    if (host->n > 0 && memchr(host->at, '/', host->n) != NULL) return "a host name cannot contain a slash";
    return NULL;
}

static const char *parse_host(pd_address *address, part host, pd_address_use use)
{
    if (host.n == 1 && host.at[0] == '*')
        return use == PD_TO_LISTEN ? NULL : "* means every interface of a server: a client needs a host";
    for (size_t i = 0; i < host.n; i++)
        if ((unsigned char)host.at[i] <= ' ' || host.at[i] == '*') return "a host name cannot contain blanks or *";
    if (host.n == 0) host = (part){ "127.0.0.1", 9 };
    return copy(address->host, sizeof address->host, host) ? NULL : "the host is longer than 255 bytes";
}

static const char *parse_tcp(pd_address *address, part text, pd_address_use use)
{
    part host, rest;
    const char *why =
        text.n > 0 && text.at[0] == '[' ? split_brackets(text, &host, &rest) : split_plain(text, &host, &rest);

    if (why == NULL && host.n + rest.n == 0) return "it is empty";
    if (why == NULL) why = parse_host(address, host, use);
    if (why != NULL) return why;
    if (rest.n > 0 && rest.at[0] != ':') return "only a colon and a port may follow the ]";
    if (rest.n > 0) return parse_port(address, (part){ rest.at + 1, rest.n - 1 }, use);
    strcpy(address->port, PD_DEFAULT_PORT);
    return use == PD_TO_CONNECT ? NULL : "the port is missing";
}

static const char *parse_path(pd_address *address, part path)
{
    const struct sockaddr_un *largest = NULL;

    address->local = true;
    if (path.n == 0 || path.at[0] != '/') return "a Unix socket has an absolute path: unix:///run/paramd/socket";
    return copy(address->host, sizeof largest->sun_path, path) ? NULL : "the path of a Unix socket is too long";
}

static int parse(pd_address *out, part text, pd_address_use use, pd_error *err)
{
    part rest = text;
    const char *why;

    memset(out, 0, sizeof *out);
    if (take_prefix(&rest, "unix://"))
        why = parse_path(out, rest);
    else if ((out->secure = take_prefix(&rest, "tls://")) || take_prefix(&rest, "tcp://") ||
             memchr(rest.at, '/', rest.n) == NULL)
        why = parse_tcp(out, rest, use);
    else
        why = "unknown scheme";
    return why == NULL ? PD_OK : bad(text, use, why, err);
}

static part trim(part p)
{
    while (p.n > 0 && strchr(" \t", p.at[0]) != NULL) p = (part){ p.at + 1, p.n - 1 };
    while (p.n > 0 && strchr(" \t", p.at[p.n - 1]) != NULL) p.n--;
    return p;
}

int pd_addresses_parse(pd_address **out, size_t *n, const char *text, pd_address_use use, pd_error *err)
{
    size_t count = 1, i = 0;
    pd_address *addresses;
    int rc = PD_OK;

    for (const char *at = text; *at != '\0'; at++) count += *at == ',';
    if ((addresses = calloc(count, sizeof *addresses)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (const char *at = text; i < count && rc == PD_OK; i++) {
        size_t length = strcspn(at, ",");
        rc = parse(&addresses[i], trim((part){ at, length }), use, err);
        at += length + 1;
    }
    if (rc != PD_OK) {
        free(addresses);
        return rc;
    }
    *out = addresses;
    *n = count;
    return PD_OK;
}

const char *pd_address_text(const pd_address *address, char *text)
{
    const char *scheme = address->secure ? "tls" : "tcp";

    if (address->local)
        snprintf(text, PD_ADDRESS_TEXT, "unix://%s", address->host);
    else if (address->host[0] == '\0')
        snprintf(text, PD_ADDRESS_TEXT, "%s://*:%s", scheme, address->port);
    else
        snprintf(text, PD_ADDRESS_TEXT, strchr(address->host, ':') != NULL ? "%s://[%s]:%s" : "%s://%s:%s", scheme,
                 address->host, address->port);
    return text;
}
