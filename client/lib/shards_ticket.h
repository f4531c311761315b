/* shards_ticket.h - tickets of calls that several shards take part in: each shard has an operation for its part. */
#ifndef PD_SHARDS_TICKET_H
#define PD_SHARDS_TICKET_H

#include "shards.h"

/* A shard's part of a call. A call may have several parts on one shard. */
typedef struct pd_part {
    size_t shard;
    unsigned method;       /* PD_PUSH, PD_PUSH_PULL or PD_PULL; PD_NOTE: a worker state alone */
    pd_ticket_id ticket;   /* 0: nothing is under way */
    pd_item *items;        /* its items, `n` of them, which its operation fills */
    pd_item_count *counts; /* of these items; NULL: not wanted */
    size_t *of;            /* for each item: the index of the caller's item that it is a part of */
    size_t n;
} pd_part;

/* A call under way. Fields without a comment of their own do not change once the call has begun. */
typedef struct pd_joined {
    pd_ticket_id id;
    pd_item *items; /* the caller's, `n` of them; borrowed */
    size_t n;
    pd_item_count *counts; /* the caller's; NULL: not wanted */
    pd_part *parts;
    size_t n_parts, room; /* room: number of items that the parts have together; it grows while parts are added */
    pd_item *part_items;  /* memory of the parts' items, counts and indices */
    pd_item_count *part_counts;
    size_t *part_of;
    /* Guarded by pd_shards.lock. first_failed: the part that failed first; n_parts: none. error: why a part could not
     * be begun. users: threads that wait for the ticket. removed: one of them has taken the result. */
    size_t first_failed;
    pd_error error;
    size_t users;
    bool removed;
    UT_hash_handle hh;
} pd_joined;

/* Makes a call with room for `parts` parts, which have `room` items together. NULL: out of memory. */
pd_joined *pd_joined_new(size_t parts, size_t room, bool counts);
void pd_joined_free(pd_joined *joined);
/* Adds a part without items. */
pd_part *pd_joined_part(pd_joined *joined, size_t shard, unsigned method);
/* Adds an item to the part that was added last. `of`: index of the caller's item. */
void pd_joined_item(pd_joined *joined, pd_item item, size_t of);
/* Gives a ticket to a call that has begun. pd_shards.lock is held. PD_NO_MEMORY. */
int pd_joined_add(pd_shards *shards, pd_joined *joined, pd_ticket_id *ticket, pd_error *err);
/* Takes the ticket back. pd_shards.lock is held. */
void pd_joined_remove(pd_shards *shards, pd_joined *joined);

#endif
