/* cluster_urls.c - makes the addresses of a daemon of a cluster from its settings. */
#include "cluster_urls.h"

#include "address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first address of a list. A port 0 becomes `port`. */
static int first_address(pd_address *out, const char *text, pd_address_use use, unsigned port, pd_error *err)
{
    pd_address *addresses;
    size_t n;
    int rc = pd_addresses_parse(&addresses, &n, text, use, err);

    if (rc != PD_OK) return rc;
    *out = addresses[0];
    free(addresses);
    if (strcmp(out->port, "0") == 0) snprintf(out->port, sizeof out->port, "%u", port);
    return PD_OK;
}

static bool is_wildcard(const pd_address *address)
{
    return !address->local &&
           (address->host[0] == '\0' || strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0);
}

/* Writes an address unless its port is not known. */
static void write_address(char *out, const pd_address *address, const char *scheme)
{
    char text[PD_ADDRESS_TEXT];

    out[0] = '\0';
    if (strcmp(address->port, "0") == 0) return;
    pd_address_text(address, text);
    if (scheme != NULL && !address->local)
        snprintf(out, PD_CLUSTER_URL, "%s%s", scheme, strstr(text, "://") + 3);
    else
        snprintf(out, PD_CLUSTER_URL, "%s", text);
}

/* Makes the address of server.listen or cluster.advertise. */
static int make_url(pd_address *out, const pd_cluster_urls_from *from, pd_error *err)
{
    int rc;

    if (from->advertise[0] != '\0') return first_address(out, from->advertise, PD_TO_CONNECT, from->port, err);
    if ((rc = first_address(out, from->listen, PD_TO_LISTEN, from->port, err)) != PD_OK) return rc;
    if (!is_wildcard(out)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "cluster.advertise: expected the address at which workers reach this daemon, such as "
                   "tls://a.example:7070: server.listen = %.100s means every interface",
                   from->listen);
}

int pd_cluster_urls_make(pd_cluster_urls *out, const pd_cluster_urls_from *from, pd_error *err)
{
    pd_address url, http;
    int rc = make_url(&url, from, err);

    *out = (pd_cluster_urls){ 0 };
    if (rc != PD_OK) return rc;
    write_address(out->url, &url, NULL);
    if (from->http_listen[0] == '\0') return PD_OK;
    if ((rc = first_address(&http, from->http_listen, PD_TO_LISTEN, from->http_port, err)) != PD_OK) return rc;
    if (is_wildcard(&http) && !url.local) snprintf(http.host, sizeof http.host, "%s", url.host);
    write_address(out->http, &http, "http://");
    return PD_OK;
}
