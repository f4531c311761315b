/* sim_mirror.h - the mirrors of shards (server.mirror) in plans with --mirrors: the owner of a shard copies its own
 * disk to a directory that every machine reaches, and that is all that another daemon gets of the shard. */
#ifndef SIM_MIRROR_H
#define SIM_MIRROR_H

#include "disk.h"
#include "server_state.h"

/* Makes the mirrors of all shards, which are empty. */
void sim_mirrors_begin(sim *s);
/* Ends all copying, and frees the mirrors. Does nothing in plans without mirrors. */
void sim_mirrors_end(void);

/* Begins to copy a server's disk to the mirror of its shard, before its jobs are loaded. `tenure` returns that of the
 * server. */
void sim_mirror_open(sim_server *server, uint64_t (*tenure)(void *arg), void *arg);
/* The server's process has ended: it copies no more. */
void sim_mirror_close(const sim_server *server);
/* Keeps owners up to this tenure out of the mirror of a shard, and copies its jobs to a disk. Returns the error of
 * pd_mirror_fetch. */
int sim_mirror_fetch(uint32_t shard, uint64_t tenure, const pd_disk *to, pd_error *err);

#endif
