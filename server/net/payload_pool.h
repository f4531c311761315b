/* payload_pool.h - memory for the payloads of frames.
 *
 * Runs on the loop thread. Buffers are used again by size class, because filling 64 MiB of new memory from the kernel
 * takes 30 ms, and filling used memory takes 4 ms. New memory of the larger classes is allocated and touched on other
 * threads, because the first touch of a huge page can take milliseconds. The frame waits meanwhile. */
#ifndef PD_PAYLOAD_POOL_H
#define PD_PAYLOAD_POOL_H

#include "platform.h"
#include "request.h"

typedef struct pd_pool pd_pool;

/* Makes a pool of payload buffers. Returns NULL if out of memory.
 *
 *   limit     bounds the bytes of used and unused buffers together: above it, unused buffers are freed
 *   platform  is copied; its other threads allocate new memory. Without them (or if NULL), memory is allocated at once
 *   ready     is called when memory is allocated for which a frame waits */
pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg);
/* Frees the pool of payload buffers. All buffers must have been returned, and no background work may be under way.
 * Accepts NULL. */
void pd_pool_free(pd_pool *pool);

/* Gives a buffer of `size` bytes (> 0), aligned to 64 bytes, for a payload of the connection with number `conn`. Its
 * contents are undefined.
 *
 * PD_UNAVAILABLE: another thread is allocating memory; call again after `ready`, with `asked` true. PD_NO_MEMORY: there
 * is none. */
int pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out);
/* Returns the buffer of a payload to the pool, which may use it again. */
void pd_pool_put(pd_pool *pool, pd_buffer *buffer);

/* Return how many bytes of memory the pool has in payload buffers: in those that are in use, and in those that are kept
 * for later use. */
uint64_t pd_pool_used(const pd_pool *pool);
uint64_t pd_pool_kept(const pd_pool *pool);

#endif
