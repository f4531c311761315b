/* pd_cluster.h - a daemon's place in a cluster with an engine: which shard it has, which daemons have the others, and how
 * long its own lease lasts. The engine is a store of keys with leases, such as etcd (engine.h).
 *
 *     pd_cluster_open(&cluster, &config, now_ms, &err);      asks the engine for the table; nothing is registered yet
 *     pd_cluster_turn(cluster, now_ms);                      whenever pd_cluster_fd is readable, and at the returned time
 *     pd_cluster_place(cluster);                             PD_PLACE_CHOSEN: a shard may be taken. The caller gets its
 *                                                            state ready on another thread
 *     pd_cluster_claim(cluster, url, http, life);            registers the daemon as the shard's owner
 *     pd_cluster_place(cluster);                             PD_PLACE_OWNER, or PD_PLACE_SPARE: another was faster
 *     pd_cluster_leave(cluster);                             removes the daemon's key
 *     pd_cluster_free(cluster);
 *
 * Loop thread. No function waits. */
#ifndef PD_CLUSTER_H
#define PD_CLUSTER_H

#include "most_shards.h"
#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PD_CLUSTER_URL = 512,   /* most bytes of a URL in the table, with its terminating zero */
    PD_CLUSTER_NAME = 64,   /* most bytes of the name of a cluster or a spare, with its terminating zero */
    PD_CLUSTER_SPARES = 64, /* most spares that the table has; more are ignored */
};

/* A shard of the cluster, as the engine knows it. */
typedef struct pd_cluster_shard {
    char url[PD_CLUSTER_URL];  /* where clients reach the last owner; "": the shard has had no owner yet */
    char http[PD_CLUSTER_URL]; /* the last owner's HTTP address; "": it has none */
    uint64_t life;             /* number of the copy of the state that the last owner has */
    uint64_t tenure;           /* number of the present owner; 0: there is none */
    bool alive;                /* the owner's lease has not ended */
    uint64_t lease_ms;         /* ms until the lease ends, if the owner is this daemon; otherwise 0 */
} pd_cluster_shard;

/* A daemon that takes over a shard if its owner is gone. */
typedef struct pd_cluster_spare {
    char name[PD_CLUSTER_NAME];
    char http[PD_CLUSTER_URL]; /* its HTTP address; "": it has none */
} pd_cluster_spare;

/* The table of the cluster. */
typedef struct pd_cluster_table {
    const char *name;  /* the cluster's name */
    uint64_t version;  /* grows whenever an entry changes; 0: the engine has not answered yet */
    uint32_t n_shards; /* number of shards of the cluster: numbers 0 to n_shards - 1 */
    uint32_t n_spares;
    pd_cluster_shard shards[PD_MAX_SHARDS];
    pd_cluster_spare spares[PD_CLUSTER_SPARES];
    int own;           /* number of this daemon's shard; -1: it has none (yet) */
    uint64_t tenure;   /* this daemon's tenure; 0: it owns no shard */
    uint64_t lease_ms; /* ms until the lease of this daemon's key ends; 0: it has ended, or there is none */
    bool engine_up;    /* the engine has answered the last call */
} pd_cluster_table;

typedef struct pd_cluster pd_cluster;

/* Returns the table as the engine has last told it. Valid until the next turn of the loop. */
const pd_cluster_table *pd_cluster_table_now(const pd_cluster *cluster);
/* Sets the function that is called after an entry of the table has changed, from pd_cluster_turn. */
void pd_cluster_on_change(pd_cluster *cluster, void (*changed)(void *arg), void *arg);

#endif
