/* pd_cluster.h - a daemon's place in a cluster with an engine: which shard it has, which daemons have the others, and
 * how long its own lease lasts. The engine is a store of keys with leases, such as etcd (engine.h).
 *
 *     pd_etcd_open(&engine, ...);
 *     pd_cluster_new(&cluster, engine, &config, &err);
 *     pd_cluster_turn(cluster, now_ms);        whenever pd_cluster_fd is readable, and at the time that it returns
 *     pd_cluster_place(cluster);               PD_PLACE_CHOSEN: a shard may be taken (pd_cluster_chosen). The caller
 *                                              makes its state ready on another thread
 *     pd_cluster_claim(cluster, url, life);    registers the daemon as the shard's owner, or
 *     pd_cluster_decline(cluster);             looks for another shard, since the state cannot be had
 *     pd_cluster_place(cluster);               PD_PLACE_OWNER; PD_PLACE_SPARE: another was faster
 *     pd_cluster_leave(cluster);               before the daemon ends
 *     pd_cluster_free(cluster);
 *
 * Loop thread. No function waits. */
#ifndef PD_CLUSTER_H
#define PD_CLUSTER_H

#include "cluster_table.h"
#include "paramd/error.h"

typedef struct pd_cluster pd_cluster;
struct pd_engine; /* engine.h */

/* What pd_cluster_new needs to know. Texts are borrowed for the cluster's life. */
typedef struct pd_cluster_config {
    const char *name;        /* the cluster's name: letters, digits, '-', '_' and '.' */
    int shard;               /* number of the shard that this daemon is to own; -1: it is a spare */
    uint32_t shards;         /* number of shards of the cluster */
    const char *process;     /* name of this process among the spares */
    const char *url, *http;  /* where clients reach this daemon, as far as known; "": not known, or nowhere */
    uint64_t ttl_ms;         /* how long a lease lasts that is not renewed */
    uint64_t process_number; /* random number of this process; not 0 */
    void (*log)(void *arg, int level, const char *text);
    void (*lost)(void *arg); /* another daemon owns this one's shard: it must stop serving at once */
    void *arg;
} pd_cluster_config;

typedef enum pd_place {
    PD_PLACE_ASKS,   /* the engine has not answered yet */
    PD_PLACE_SPARE,  /* waits for a shard without owner */
    PD_PLACE_CHOSEN, /* a shard may be taken: pd_cluster_claim or pd_cluster_decline is expected */
    PD_PLACE_CLAIMS, /* registers as the shard's owner */
    PD_PLACE_OWNER,  /* owns a shard */
    PD_PLACE_LOST,   /* has owned a shard that another one owns now */
} pd_place;

/* Makes a cluster, which asks the engine for the table in its first turn. Takes over the engine, also after an error.
 * PD_NO_MEMORY. */
int pd_cluster_new(pd_cluster **out, struct pd_engine *engine, const pd_cluster_config *config, pd_error *err);
/* Gives up all calls and frees the cluster with its engine. Accepts NULL. */
void pd_cluster_free(pd_cluster *cluster);
/* Returns the descriptor that is readable when a turn is due. */
int pd_cluster_fd(const pd_cluster *cluster);
/* Sends, receives, and decides. Returns when the next turn is due at the latest. */
uint64_t pd_cluster_turn(pd_cluster *cluster, uint64_t now_ms);

pd_place pd_cluster_place(const pd_cluster *cluster);
/* Returns the number of the shard that may be taken, or that this daemon owns; -1: there is none. */
int pd_cluster_chosen(const pd_cluster *cluster);
/* Returns whether the last owner of the chosen shard may still serve it, at another address than `url`, this daemon's:
 * the caller then makes sure that it does not. The address of a daemon that owns another shard now does not count. */
bool pd_cluster_must_probe(const pd_cluster *cluster, const char *url);
/* Begins to register this daemon as the owner of the chosen shard. `life` is the number of its copy of the state. If
 * the shard has had an owner since it was chosen, that one's state is newer: the daemon becomes a spare again. The key
 * of an earlier process of this daemon (the same `url`) is removed first: the caller listens at `url` already, and has
 * locked the state directory, so that process has ended. PD_INVALID_ARGUMENT: the URL is too long. */
int pd_cluster_claim(pd_cluster *cluster, const char *url, uint64_t life, pd_error *err);
/* Does not take the chosen shard now. It is chosen again a moment later, unless it has an owner then. */
void pd_cluster_decline(pd_cluster *cluster);
/* Ceases to renew this daemon's leases, and begins to remove its key if it is a spare. The key of an owner stays until
 * its lease ends: meanwhile the daemon may start again, and its shard has no other owner. */
void pd_cluster_leave(pd_cluster *cluster);
/* Returns whether the key is removed, or the engine has not answered. */
bool pd_cluster_has_left(const pd_cluster *cluster);

/* Returns the table of shards as the engine has last told it. Valid until the loop thread's next turn. */
const pd_cluster_table *pd_cluster_table_now(const pd_cluster *cluster);
/* Sets the function that is called after an entry of the table has changed, from pd_cluster_turn. */
void pd_cluster_on_change(pd_cluster *cluster, void (*changed)(void *arg), void *arg);

#endif
