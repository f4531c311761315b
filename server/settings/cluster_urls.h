/* cluster_urls.h - the addresses that a daemon of a cluster gives to others, as its settings say them. */
#ifndef PD_CLUSTER_URLS_H
#define PD_CLUSTER_URLS_H

#include "cluster_table.h"
#include "paramd/error.h"

/* The settings that say them. */
typedef struct pd_cluster_urls_from {
    const char *advertise, *listen, *http_listen; /* cluster.advertise, server.listen, http.listen */
    unsigned port, http_port;                     /* the ports that stand for port 0; 0: they are not known yet */
} pd_cluster_urls_from;

typedef struct pd_cluster_urls {
    char url[PD_CLUSTER_URL];  /* where clients reach the daemon; "": its port is not known yet */
    char http[PD_CLUSTER_URL]; /* its HTTP address; "": it has none, or its port is not known yet */
} pd_cluster_urls;

/* Makes the addresses: cluster.advertise, or the first address of server.listen; and the first of http.listen.
 * PD_INVALID_ARGUMENT: clients cannot
 * use the first address of server.listen, and cluster.advertise is empty; or an address is wrong or too long. */
int pd_cluster_urls_make(pd_cluster_urls *out, const pd_cluster_urls_from *from, pd_error *err);

#endif
