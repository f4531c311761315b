/* buffer_pool.h - recycles large buffers by exact size: weights, sums of gradients, copies of contributions.
 *
 * Step thread. A fresh buffer of 64 MiB costs 30 ms of page faults, a recycled one nothing. The users of a pool are
 * parameters. A pool keeps at most two idle buffers for each user: one for the next weights, one for a sum. When the
 * last user is gone it keeps none. */
#ifndef PD_BUFFER_POOL_H
#define PD_BUFFER_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct pd_buffer_pool pd_buffer_pool;

/* The pools of all sizes. Initialize with zeros. */
typedef struct pd_buffer_pools {
    pd_buffer_pool *table; /* hash table of the pools, by the size of their buffers */
    uint64_t used, idle;   /* bytes of buffers in use; bytes of idle buffers in the pools */
} pd_buffer_pools;

/* Returns the pool of buffers of `bytes` (> 0) bytes, and adds a user to it. Makes the pool if necessary. NULL: out
 * of memory. */
pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, size_t bytes);
/* Removes a user from a pool. The pool lives on until its last buffer in use comes back. Accepts NULL. */
void pd_buffer_pool_leave(pd_buffer_pool *pool);
/* Returns a buffer from the pool, or a new one. Its content is undefined; it is aligned to 64 bytes. NULL: out of
 * memory. */
void *pd_buffer_pool_take(pd_buffer_pool *pool);
/* Returns a buffer to its pool. Accepts NULL. */
void pd_buffer_pool_give(pd_buffer_pool *pool, void *at);
/* Returns the size of a pool's own record, without buffers. */
uint64_t pd_buffer_pool_own_bytes(void);

#endif
