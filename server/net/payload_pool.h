/* payload_pool.h - memory for the payloads of frames.
 *
 * Loop thread. Buffers are recycled by size class: 64 MiB fresh from the kernel cost 30 ms, recycled 4 ms. Fresh memory
 * of the larger classes is allocated and touched on other threads, because the first touch of a huge page can take
 * milliseconds. The frame waits for it. */
#ifndef PD_BUFFER_POOL_H
#define PD_BUFFER_POOL_H

#include "platform.h"
#include "request.h"

typedef struct pd_pool pd_pool;

/* Makes a pool. `limit` bounds the bytes of used and unused buffers together: above it, unused buffers are freed.
 * `platform` is copied; its other threads allocate fresh memory. If it is NULL or has no other threads, memory is
 * allocated at once. `ready` is called when memory that a frame waits for is there. NULL: out of memory. */
pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg);
/* Frees the pool. All buffers must be back, and no background work may be under way. Accepts NULL. */
void     pd_pool_free(pd_pool *pool);

/* Gives a buffer of `size` bytes (> 0), aligned to 64 and charged to `conn`. Its contents are undefined.
 * PD_UNAVAILABLE: memory is being allocated; ask again after `ready`, with `asked` true. PD_NO_MEMORY. */
int      pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out);
/* Takes a buffer back. */
void     pd_pool_put(pd_pool *pool, pd_buffer *buffer);

/* Bytes allocated for buffers in use, and for unused ones. */
uint64_t pd_pool_used(const pd_pool *pool);
uint64_t pd_pool_kept(const pd_pool *pool);

#endif
