/* sim_owner.h - which server owns which shard in plans with spares: each server has the daemon's place in a cluster
 * (server/cluster), whose engine is a model of etcd (tests/support/engine_model.h) in the time of the simulation.
 *
 * A server owns a shard, or is a spare, or is down. All shards have their state in a directory that every machine
 * reaches, as on NFS: a server that becomes the owner gets what the disk of the earlier one has. From then on calls of
 * the earlier owner's disk fail. It may sleep, or be cut off, and still have connections and jobs. As soon as the
 * engine tells it that another server has its shard, its process ends, and another one starts, which is a spare. */
#ifndef SIM_OWNER_H
#define SIM_OWNER_H

#include "server_state.h"

typedef struct sim_owner sim_owner;
struct pd_cluster_table;

/* Makes a server's place in the cluster, of which it knows nothing yet. */
sim_owner *sim_owner_new(sim_server *server);
void sim_owner_free(sim_owner *owner); /* accepts NULL */
/* Returns the server's table of shards: pd_platform.table. */
const struct pd_cluster_table *sim_owner_table(void *server);

/* Starts the engine and all daemons. This and the next functions do nothing in plans without spares. */
void sim_owners_begin(sim *s);
/* Stops the daemons' dealings with the engine, once all jobs have ended. */
void sim_owners_rest(sim *s);
/* Returns whether all daemons run, and none serves a shard that another one has. */
bool sim_owners_are_settled(const sim *s);
/* Checks that no daemon serves a shard for long after it could know that another one has it. */
void sim_owners_check(const sim *s);
void sim_owners_describe(const sim *s);

/* Called when a step has become durable on all shards, as a process of the job knows. In a plan with two owners of a
 * shard, after a takeover, a process of the job dies soon, once. */
void sim_owners_durable(sim *s, const sim_job *job);
/* Returns the number of the server that a new process of a rank is to name first. */
uint32_t sim_owners_first(const sim *s, uint32_t rank);

/* Takes part in a fault of these kinds: SIM_SLEEP, SIM_CUT_OFF, SIM_ENGINE_AWAY, SIM_LATE_WATCH. */
void sim_owner_hurt(sim_server *server, const sim_fault *fault);
/* Notes the time from the server's next kill until it starts again. 0: a short one is drawn. */
void sim_owner_note_down(sim_server *server, uint64_t ns);
/* Returns whether the server's process has ended, and none has started since. */
bool sim_owner_is_down(const sim_server *server);
/* The server's process has ended: another one starts later. */
void sim_owner_ended(sim_server *server);

#endif
