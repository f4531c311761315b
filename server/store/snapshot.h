/* snapshot.h - memory for weights and sums of gradients: where do large buffers come from, and where do they go?
 *
 * Step thread. A fresh 64 MiB costs 30 ms of page faults, a recycled one nothing, so buffers are kept by exact size on a
 * shelf. Parameters are the users of a shelf: it keeps at most two idle buffers a user (one for the weights to come, one
 * for a sum), and none once the last user is gone. */
#ifndef PD_SNAPSHOT_H
#define PD_SNAPSHOT_H

#include "request.h"

typedef struct pd_buffer_pool pd_buffer_pool;

typedef struct pd_buffer_pools {
    pd_buffer_pool *table;            /* hash table by size */
    uint64_t  used, idle;       /* bytes handed out, bytes waiting on shelves */
} pd_buffer_pools;

/* The shelf of a size, with one user more. `bytes` > 0. NULL: out of memory. */
pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, size_t bytes);
/* One user less. Buffers still out keep the shelf alive. Accepts NULL. */
void      pd_buffer_pool_leave(pd_buffer_pool *shelf);
/* Gives a buffer of unspecified content, aligned to 64 bytes. NULL: out of memory. */
void     *pd_buffer_pool_take(pd_buffer_pool *shelf);
/* Takes it back. Accepts NULL. */
void      pd_buffer_pool_give(pd_buffer_pool *shelf, void *at);

/* Bytes that a parameter's snapshots and sum take beside the elements: records, shelves, and the ends of the buffers. */
uint64_t pd_snapshots_own_bytes(void);

/* A snapshot with a buffer from each shelf that is not NULL, indexed by pd_dtype; store_refs 1, content unspecified. NULL: out of memory. */
pd_snapshot *pd_snapshot_new(pd_buffer_pool *const shelf[4], int64_t elements);
/* Gives a snapshot that nobody else has seen yet a buffer of one type more. PD_NO_MEMORY: nothing has changed. */
int          pd_snapshot_widen(pd_snapshot *snapshot, pd_dtype dtype, pd_buffer_pool *shelf);
/* One store_ref less; the last gives its buffers back to their shelves. Accepts NULL. */
void         pd_snapshot_unref(pd_snapshot *snapshot);

#endif
