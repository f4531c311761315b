/* cluster.h - one job on several shards whose ranks declare the whole model to each, and the same job in one store
 * beside it, for tests that compare them. Each shard is a rig. The test plays the workers: it sends each shard its
 * portions, and carries tallies. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "rig.h"

enum { CLUSTER_MOST = 4, CLUSTER_PARAMS = 8, CLUSTER_CONN = 10 };

/* What ranks declare. */
typedef struct cluster_model {
    size_t n;
    const char *names[CLUSTER_PARAMS];
    pd_shape shapes[CLUSTER_PARAMS];
    bool states[CLUSTER_PARAMS]; /* model state */
    uint32_t fragments[CLUSTER_PARAMS];
    bool ranged; /* each rank has an equal part of each parameter but the model state */
} cluster_model;

typedef struct cluster {
    uint32_t n, world; /* number of shards; number of ranks */
    const cluster_model *model;
    const char *options, *rules;
    pd_store_config config;
    rig *shard[CLUSTER_MOST], *whole;
    uint64_t number;    /* of the cluster, from shard 0 */
    uint64_t processes; /* is added to nonces: other processes have the ranks */
    uint64_t ask_step[CLUSTER_MOST];
    uint32_t ask_phase[CLUSTER_MOST];
    bool asks[CLUSTER_MOST]; /* the shard has been asked for that step and phase */
    uint64_t seen[CLUSTER_MOST];
    pd_tally_view tally[CLUSTER_MOST];
    uint8_t bytes[CLUSTER_MOST][4096];
} cluster;

/* Returns a model with a matrix that is cut in three at split_bytes=512KiB, vectors, a scalar and model state. */
const cluster_model *cluster_small_model(void);
/* Returns a configuration with large chunks. */
pd_store_config cluster_config(void);

/* Starts the job on n shards and in one store. All ranks join, declare, and have sent initial weights. */
void cluster_start(cluster *c, uint32_t n, uint32_t world, const pd_store_config *config, const cluster_model *model,
                   const char *options, const char *rules);
void cluster_free(cluster *c);
/* Let a rank say Hello, or Hello and Declare, to one shard; `r` is the rig of that shard or the one store. Return the
 * answer's code. */
int cluster_hello(const cluster *c, rig *r, uint32_t rank);
int cluster_declare(const cluster *c, rig *r, uint32_t rank);
int cluster_join(const cluster *c, rig *r, uint32_t rank);

/* All ranks push all parameters, and the stores take the step. Bit p of `absent`: rank 0 has no gradient of parameter
 * p. `spoilt`: the parameter of which rank 1 has a NaN; -1: none. */
void cluster_step(cluster *c, uint64_t step, unsigned absent, int spoilt);
/* Lets all stores work, and carries tallies until nothing changes. */
void cluster_settle(cluster *c);
/* Asks shard `i` anew for tallies from this step on, after it has started again. */
void cluster_forget(cluster *c, uint32_t i, uint64_t step);
/* Asserts that all portions have the weights, steps and outcomes that their parameters have in the one store. */
void cluster_assert_same(const cluster *c, uint64_t step);
/* Returns on how many shards something of the parameter lies. */
uint32_t cluster_spread_of(const cluster *c, size_t param);

#endif
