/* snapshot.h - published weights of one parameter: one buffer for each element type that workers pull. Step thread. */
#ifndef PD_SNAPSHOT_H
#define PD_SNAPSHOT_H

#include "buffer_pool.h"
#include "request.h"

/* Returns the bytes that a parameter's snapshots and sum take beside the elements: records, pools, and the ends of the
 * buffers. */
uint64_t pd_snapshots_own_bytes(void);

/* Returns a snapshot with a buffer from each pool that is not NULL, indexed by pd_dtype; store_refs 1, content
 * unspecified. NULL: out of memory. */
pd_snapshot *pd_snapshot_new(pd_buffer_pool *const pool[4], int64_t elements);
/* Gives a snapshot that nobody else has seen yet a buffer of one type more. PD_NO_MEMORY: nothing has changed. */
int          pd_snapshot_widen(pd_snapshot *snapshot, pd_dtype dtype, pd_buffer_pool *pool);
/* Drops one store_ref; the last gives the buffers back to their pools. Accepts NULL. */
void         pd_snapshot_unref(pd_snapshot *snapshot);

#endif
