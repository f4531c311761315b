/* shard_servers.h - small servers, one a thread, that are the shards of a cluster for one worker: tests of the client's
 * handle over several servers. The map of parameters is the test's own. A server subtracts gradients from its
 * weights. */
#ifndef SHARD_SERVERS_H
#define SHARD_SERVERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "message.h"

enum { SHARDS_MOST = 4, SHARD_PARAMS = 6, SHARD_PORTIONS = 4, SHARD_HANDLES = 16, SHARD_ROOM = 4096 };
enum { SHARD_CHUNK = 256 }; /* elements of a chunk */

/* Where a parameter lies. n_portions 0: whole on `shard`. */
typedef struct shard_place {
    uint32_t shard;
    size_t n_portions;
    struct {
        uint64_t first, count;
        uint32_t shard;
    } portions[SHARD_PORTIONS];
} shard_place;

typedef struct shard_server {
    struct shard_servers *all;
    uint32_t number;
    int listener, port;
    pthread_t thread;
    /* Set by the test while no request is under way. seed, life, map, kernels, settles: in the answers to Hello and
     * Declare. */
    uint64_t seed, life, map;
    bool settles;
    const char *kernels;
    /* Requests of method `refuses` are refused with this code, `refusals` of them; those of method `ignores` get no
     * answer. PD_METHODS: none. late_ms: time before each answer. */
    _Atomic unsigned refuses, ignores;
    atomic_int code, refusals, late_ms;
    atomic_bool down;   /* it takes no connections, and ends the one that it has */
    atomic_int tenure;  /* in its answers to Hello; 0: the servers have no table of shards */
    atomic_int told;    /* number of notices of the table that it has sent */
    atomic_bool serves; /* it has a connection */
    atomic_bool behind; /* its table is that of the beginning, and it tells of no change */
    /* What it has: weights and steps by handle; initial weights have come; how often each method came. */
    float weights[SHARD_HANDLES][SHARD_ROOM];
    uint64_t step[SHARD_HANDLES];
    atomic_bool initialised;
    atomic_int came[PD_METHODS];
    atomic_int scalars; /* number of scalars that came */
    uint64_t durable;   /* step that its answers to pushes report as durable; 0: its number + 3 */
    uint64_t shards, cluster, note_step, replaces;
    uint64_t ahead;        /* its checkpoints are of this step or later ones */
    _Atomic uint64_t most; /* requests for checkpoints of later steps get no answer; 0: all do */
} shard_server;

typedef struct shard_servers {
    size_t n, n_params;
    shard_place places[SHARD_PARAMS];
    shard_server at[SHARDS_MOST];
    char urls[256]; /* the list for the client */
    atomic_bool stop;
    /* The table of shards: which server has each shard, and with which tenure. `n` servers are shards at first, and
     * `spares` more wait. version: number of changes, each of which the servers tell their workers. */
    size_t spares;
    atomic_int owner[SHARDS_MOST], tenure[SHARDS_MOST], version;
} shard_servers;

/* Starts n servers for these parameters. */
shard_servers *shard_servers_start(size_t n, const shard_place *places, size_t n_params);
/* Starts n servers that have a table of shards, and `spares` more that have no shard yet. */
shard_servers *shard_servers_start_followed(size_t n, size_t spares, const shard_place *places, size_t n_params);
/* Lets server `to` take over a shard, with what the present owner has. The owner is not told. `notice`: the other
 * servers tell their workers. */
void shard_servers_move(shard_servers *all, uint32_t shard, size_t to, bool notice);
void shard_servers_end(shard_servers *all);

#endif
