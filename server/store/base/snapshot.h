/* snapshot.h - snapshots: published weights of one parameter, with one buffer for each element type that workers
 * pull. Step thread. */
#ifndef PD_SNAPSHOT_H
#define PD_SNAPSHOT_H

#include "buffer_pool.h"
#include "unread.h"
#include "request.h"

/* Returns the bytes that a parameter's snapshots and its sum of gradients take besides their elements: records, pools,
 * and padding at the ends of buffers. */
uint64_t pd_snapshots_own_bytes(void);

/* Creates a snapshot with undefined content and one reference (store_refs). It gets a buffer from each pool of the
 * array that is not NULL; pool[t] is that of element type t (pd_dtype). NULL: out of memory. */
pd_snapshot *pd_snapshot_new(pd_buffer_pool *const pool[4], int64_t elements);
/* Adds a buffer of another element type to a snapshot that is not published yet. PD_NO_MEMORY: the snapshot is
 * unchanged. */
int pd_snapshot_widen(pd_snapshot *snapshot, pd_dtype dtype, pd_buffer_pool *pool);
/* Notes that `now` is published in place of `before`, which counts as held from now on until the loop thread has
 * returned it. Either may be NULL. */
void pd_snapshot_replace(pd_unread *unread, pd_snapshot *now, pd_snapshot *before);
/* Takes a snapshot back that the loop thread has returned: drops its reference. */
void pd_snapshot_returned(pd_snapshot *snapshot);
/* Drops one reference (store_refs) to a snapshot. When the last one is dropped, the snapshot is freed and its buffers
 * go back to their pools. Accepts NULL. */
void pd_snapshot_unref(pd_snapshot *snapshot);

#endif
