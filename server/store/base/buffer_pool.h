/* buffer_pool.h - recycles large buffers by exact size: for weights, sums of gradients and copies of contributions.
 * Step thread.
 *
 * A fresh buffer of 64 MiB costs 30 ms of page faults, a recycled one costs nothing. The users of a pool are the
 * parameters that take their buffers from it. A pool keeps at most two idle buffers for each user: one for the next
 * weights, one for a sum. When its last user is gone it keeps none.
 *
 * A job's buffers may lie in a segment of shared memory (pd_shared_weights), so that workers on this machine read
 * weights without a copy through a socket. Workers map the segment for reading; only the daemon can write it
 * (segment.h). Memory of the segment is handed out once: the pools recycle it until the segment ends. */
#ifndef PD_BUFFER_POOL_H
#define PD_BUFFER_POOL_H

#include "segment.h"

#include <stddef.h>

typedef struct pd_shared_weights pd_shared_weights;

/* Makes a segment for the weights of a job with `elements` elements in `params` parameters. It has room for several
 * versions of the weights in two element types; unwritten pages take no memory. The caller has one reference.
 * PD_UNAVAILABLE: the system gives no shared memory. PD_NO_MEMORY. */
int pd_shared_weights_new(pd_shared_weights **out, uint64_t elements, uint64_t params, pd_error *err);
/* Returns the bytes of memory that the segment would still take if the caller dropped its reference. Accepts NULL. */
uint64_t pd_shared_weights_left(const pd_shared_weights *shared);
/* Drops a reference. The last one unmaps the segment and frees its pages. Accepts NULL. */
void pd_shared_weights_unref(pd_shared_weights *shared);
/* Returns memory for `bytes` bytes, aligned to 64 bytes. NULL: the segment is used up. */
void *pd_shared_weights_take(pd_shared_weights *shared, size_t bytes);
/* Returns the segment; NULL if shared is NULL. */
const pd_segment *pd_shared_weights_segment(const pd_shared_weights *shared);

typedef struct pd_buffer_pool pd_buffer_pool;

/* The pools of all buffer sizes, one pool for each size. Initialize with zeros. */
typedef struct pd_buffer_pools {
    pd_buffer_pool *table; /* hash table of the pools, by the size and the source of their buffers */
    uint64_t used, idle;   /* bytes of the buffers that are in use; bytes of the idle buffers that the pools keep */
} pd_buffer_pools;

/* Returns the pool of buffers of `bytes` (> 0) bytes, and counts the caller as one more user of it. Makes the pool if
 * there is none of this size. The buffers lie in the segment `shared` while it has room, then in private memory. If
 * `shared` is NULL, all lie in private memory. Returns NULL if out of memory. */
pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, pd_shared_weights *shared, size_t bytes);
/* Where the weights of a job, and the sums of its gradients, lie. */
typedef struct pd_memory {
    pd_buffer_pools *pools;    /* borrowed */
    pd_shared_weights *shared; /* segment that workers map; NULL: private memory */
} pd_memory;

/* Joins the pool of buffers of `bytes` bytes for weights and sums. NULL: out of memory. */
static inline pd_buffer_pool *pd_memory_pool(const pd_memory *memory, size_t bytes)
{
    return pd_buffer_pool_join(memory->pools, memory->shared, bytes);
}

/* Lets the pool keep one more idle buffer (`more`), or one fewer again. Used for a parameter whose old weights a
 * checkpoint keeps until they are on the disk. */
void pd_buffer_pool_keep_more(pd_buffer_pool *pool, bool more);
/* Removes a user from a pool. The pool is freed when it has no users and all its buffers have returned. Accepts
 * NULL. */
void pd_buffer_pool_leave(pd_buffer_pool *pool);
/* Returns a buffer from the pool, or a new one. Its content is undefined; it is aligned to 64 bytes. NULL: out of
 * memory. */
void *pd_buffer_pool_take(pd_buffer_pool *pool);
/* Returns a buffer to its pool, which frees it if it has idle buffers enough. Accepts NULL for `at`. */
void pd_buffer_pool_give(pd_buffer_pool *pool, void *at);
/* Returns a struct of `bytes` bytes, all of them 0, which describes buffers of the pool: one that was given back, if
 * the pool has one, so that a step allocates none. All structs of one pool have the same size. `pool` may be NULL: then
 * the struct is always new. NULL: out of memory. */
void *pd_buffer_pool_take_struct(pd_buffer_pool *pool, size_t bytes);
/* Gives a struct back to the pool that it was taken from. The pool keeps one for each user, and frees further ones.
 * Call it before the buffers return: the pool may be freed with the last of them. */
void pd_buffer_pool_give_struct(pd_buffer_pool *pool, void *at);
/* Returns the bytes of a pool's struct, without its buffers. */
uint64_t pd_buffer_pool_own_bytes(void);

#endif
