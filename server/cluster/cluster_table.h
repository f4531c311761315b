/* cluster_table.h - what a daemon knows of the shards and spares of its cluster. */
#ifndef PD_CLUSTER_TABLE_H
#define PD_CLUSTER_TABLE_H

#include "most_shards.h"

#include <stdbool.h>
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
    uint64_t last_tenure;      /* that of the newest owner, which may be gone; 0: not known */
    bool alive;                /* there is an owner: its lease has not ended */
    uint64_t lease_ms;         /* ms until the lease ends, if the owner is this daemon; otherwise 0 */
} pd_cluster_shard;

/* A daemon that takes over a shard if its owner is gone. */
typedef struct pd_cluster_spare {
    char name[PD_CLUSTER_NAME];
    char http[PD_CLUSTER_URL]; /* its HTTP address; "": it has none */
    char url[PD_CLUSTER_URL];  /* where clients reach it once it owns a shard; "": not known */
} pd_cluster_spare;

/* The table of the cluster. */
typedef struct pd_cluster_table {
    const char *name;  /* the cluster's name */
    uint64_t version;  /* grows whenever an entry changes; 0: the engine has not answered yet */
    uint32_t n_shards; /* number of shards of the cluster: numbers 0 to n_shards - 1 */
    uint32_t n_spares;
    pd_cluster_shard shards[PD_MAX_SHARDS];
    pd_cluster_spare spares[PD_CLUSTER_SPARES];
    int own;                 /* number of this daemon's shard; -1: it has none (yet) */
    uint64_t tenure;         /* this daemon's tenure; 0: it owns no shard */
    uint64_t lease_ms;       /* ms until the lease of this daemon's key ends; 0: it has ended, or there is none */
    uint64_t owned_until_ms; /* time until which nobody else can own this daemon's shard: the end of its lease, by the
                              * clock of pd_cluster_turn. 0: the daemon owns no shard */
    bool engine_up;          /* the engine has answered the last call */
} pd_cluster_table;

#endif
