/* buffer_pool.h - recycles large buffers by exact size: weights, sums of gradients, copies of contributions.
 *
 * Step thread. A fresh 64 MiB costs 30 ms of page faults, a recycled one nothing. Parameters are the users of a
 * pool: it keeps at most two idle buffers a user (one for the weights to come, one for a sum), and none once the
 * last user is gone. */
#ifndef PD_BUFFER_POOL_H
#define PD_BUFFER_POOL_H

#include <stddef.h>
#include <stdint.h>

typedef struct pd_buffer_pool pd_buffer_pool;

/* The pools of all sizes. Begins zeroed. */
typedef struct pd_buffer_pools {
    pd_buffer_pool *table;      /* hash table by size */
    uint64_t        used, idle; /* bytes handed out, bytes waiting in the pools */
} pd_buffer_pools;

/* Returns the pool of buffers of so many bytes (more than 0), with one user more. NULL: out of memory. */
pd_buffer_pool *pd_buffer_pool_join(pd_buffer_pools *all, size_t bytes);
/* Counts one user less. Buffers still out keep the pool alive. Accepts NULL. */
void            pd_buffer_pool_leave(pd_buffer_pool *pool);
/* Gives a buffer of unspecified content, aligned to 64 bytes. NULL: out of memory. */
void           *pd_buffer_pool_take(pd_buffer_pool *pool);
/* Takes a buffer back. Accepts NULL. */
void            pd_buffer_pool_give(pd_buffer_pool *pool, void *at);
/* Returns the bytes that the record of one pool takes. */
uint64_t        pd_buffer_pool_own_bytes(void);

#endif
