/* shard_table.h - what a handle knows of the places of its shards, in a cluster whose daemons have a table of shards
 * (PROTOCOL.md, section 7, Shards that move).
 *
 * The cores of a handle share the table. A core asks its server for a newer one when it is told that a shard has moved,
 * or when another core cannot reach its server; whoever is connected asks. All cores together ask at most once a
 * second, at times that differ between processes. An entry is only replaced by one with a higher tenure.
 *
 * Not every server has news: one that is no longer the owner, and is cut from the engine, answers with an old table. So
 * the core whose server has told of a change asks first. If it is late, another one asks, and then it does all the
 * same. Otherwise the cores that are connected take turns.
 *
 * The table has a lock, which is held for a short time. It may be taken while a core is locked: the table calls no
 * core, it only writes to event descriptors. It has no thread. */
#ifndef PD_SHARD_TABLE_H
#define PD_SHARD_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "message.h"
#include "shard_list.h"

typedef struct pd_shard_table pd_shard_table;

/* ---- for the owner of the cores ---- */

/* Makes an empty table. `random` varies the times at which processes ask. NULL: out of memory. */
pd_shard_table *pd_shard_table_new(uint64_t random);
/* Frees the table. All I/O threads must have stopped. Accepts NULL. */
void pd_shard_table_free(pd_shard_table *table);
/* Sets how the I/O thread of a shard's core is woken: eventfd `wake_fd` is written when the table has changed, or
 * somebody must ask, and `move_fd` when the shard has an owner at another address. -1: not at all. */
void pd_shard_table_wake(pd_shard_table *table, uint32_t shard, int wake_fd, int move_fd);
/* Fills *out with the addresses of all shards, as pd_shard_list_parse does. PD_UNAVAILABLE: a shard has had no owner
 * yet; the error names it. Other errors are those of pd_shard_list_parse. */
int pd_shard_table_list(pd_shard_table *table, pd_shard_list *out, pd_error *err);

/* ---- for a core (follow.c) ---- */

enum { PD_NO_SHARD = -1 };

/* Notes that somebody needs a newer table. `teller`: the shard whose server has news, so that its core is the first to
 * ask; PD_NO_SHARD: not known. `crowd`: many processes may need one at this moment, so this one waits for a random
 * time. */
void pd_shard_table_want(pd_shard_table *table, int teller, uint64_t now_ns, bool crowd);
/* Returns when the core of a shard must ask, if it is connected; UINT64_MAX: nobody needs a newer table. Takes no
 * lock. */
uint64_t pd_shard_table_due(const pd_shard_table *table, uint32_t shard);
/* Returns whether the core of a shard must send a Shards request now. No core of the handle sends the next one within a
 * second. */
bool pd_shard_table_take_turn(pd_shard_table *table, uint32_t shard, uint64_t now_ns);
/* Takes over a server's answer, and wakes all cores if it has changed the table. */
void pd_shard_table_learn(pd_shard_table *table, const Paramd__ShardsReply *reply);
/* Returns how many times the table has changed. Takes no lock. */
uint64_t pd_shard_table_changes(const pd_shard_table *table);
/* Returns the tenure of the shard's owner; 0: not known. *url becomes the owner's addresses, as text in new memory,
 * which the caller frees; NULL: not known, or out of memory. */
uint64_t pd_shard_table_find(pd_shard_table *table, uint32_t shard, char **url);
/* Returns the addresses of the spares, separated by commas, as text in new memory, which the caller frees; one of them
 * may own a shard by now. NULL: there are none, or out of memory. */
char *pd_shard_table_spares(pd_shard_table *table);

#endif
