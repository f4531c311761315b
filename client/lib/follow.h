/* follow.h - a core's part in following a shard that moves (shard_table.h): refuses earlier owners, asks its server for
 * the table of shards, and changes to the addresses of the newest owner. Does nothing in a core without a table. */
#ifndef PD_FOLLOW_H
#define PD_FOLLOW_H

#include "core.h"
#include "shard_table.h"

enum { PD_TENURE_UNKNOWN = 1 }; /* lower than those that engines give */
enum { PD_MOST_FOLLOWED = 16 }; /* most addresses of an owner in the table that are used, and of all spares */

/* Takes over the tenure that the table knows of the core's shard. */
void pd_follow_begin(pd_core *core);
void pd_follow_free(pd_core *core);
/* Looks at an answer to Hello. Returns whether the core may join with it: it is not that of an earlier owner, and the
 * server does not want the worker to ask for the table first. */
bool pd_follow_welcome(pd_core *core, const Paramd__HelloReply *reply);
/* Takes the answer to Shards; `refusal` NULL: it is no error. */
int pd_follow_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal);
/* Called when the server has told that an entry of the table has changed, or has refused what this worker asks for, as
 * it may know a newer owner of a shard. */
void pd_follow_moved(pd_core *core);
/* Called when a connection has ended, or could not be made. */
void pd_follow_down(pd_core *core, uint64_t now_ns);
/* Asks for the table if it is this core's turn. */
void pd_follow_tick(pd_core *core, uint64_t now_ns);

/* Returns when pd_follow_tick must be called; UINT64_MAX: there is nothing to do. */
static inline uint64_t pd_follow_due(const pd_core *core)
{
    bool asks = core->following.tenure > 0 && core->following.table != NULL && core->following.ask == 0;

    return asks && core->link.welcomed ? pd_shard_table_due(core->following.table, core->setup.shard) : UINT64_MAX;
}

/* Takes over the newest owner of the core's shard from the table. If that has moved, drops the connection, and connects
 * to the new addresses at once. Returns whether core->setup.addresses has changed: the old list is freed. The caller is
 * the I/O thread, and the core is locked. */
bool pd_core_follow(pd_core *core, uint64_t now_ns);

#endif
