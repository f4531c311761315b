/* sharded.h - a worker of a job on three shards, which are small servers (shard_servers.h): for the tests of the
 * client's handle over several servers. */
#ifndef SHARDED_H
#define SHARDED_H

#include "handle.h"
#include "shard_servers.h"

/* Three shards. "bias" lies whole on shard 2, "kernel" on shard 0, "table" is cut: 300 elements on shard 1, 500 on
 * shard 0, 200 on shard 1. */
enum { BIAS, KERNEL, TABLE, N, SHARDS = 3, MOST = 1000 };
extern const int64_t sharded_sizes[N];
extern const pd_client_param sharded_params[N];
extern const shard_place sharded_places[N];

typedef struct sharded {
    shard_servers *servers;
    pd_client *client;
    float weights[N][MOST], gradients[N][MOST], expected[N][MOST];
    pd_item items[N];
} sharded;

pd_client_options sharded_options(const sharded *w);
void sharded_open(sharded *w);
void sharded_declare(sharded *w, const pd_client_param *list);
void sharded_init(sharded *w);
/* Starts the servers, opens the handle, declares these parameters or sharded_params, and sends initial weights. */
void sharded_set_up_with(sharded *w, const pd_client_param *list);
void sharded_set_up(sharded *w);
void sharded_tear_down(sharded *w);

/* Sets the gradients and items of a step. */
void sharded_prepare(sharded *w, uint64_t step);
void sharded_expect_weights(const sharded *w);
/* Takes a step. Returns its code; sharded_take_step expects that it succeeds. */
int sharded_step(sharded *w, uint64_t number, const pd_push_options *options, pd_error *err);
void sharded_take_step(sharded *w, uint64_t number);
/* Ends the connection to a server. */
void sharded_cut(shard_server *server);

#endif
