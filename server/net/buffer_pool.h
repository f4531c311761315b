/* pool.h - memory for payloads: where does a frame's payload land?
 *
 * Loop thread. Buffers are recycled by size class: 64 MiB fresh from the kernel cost 30 ms, used again 4. Fresh memory of the larger
 * classes is made and touched on other threads, as the first touch of a huge page can take milliseconds: the frame waits for it. */
#ifndef PD_BUFFER_POOL_H
#define PD_BUFFER_POOL_H

#include "platform.h"
#include "request.h"

typedef struct pd_pool pd_pool;

/* `limit`: unused buffers are kept while those in use and they are at most so many bytes together. `platform`: whose other threads make fresh
 * memory, copied; NULL, or one without other threads: everything is made at once. `ready` is called when memory that was waited for is there. NULL: out of memory. */
pd_pool *pd_pool_new(uint64_t limit, const pd_platform *platform, void (*ready)(void *arg), void *arg);
/* All buffers must be back, and no worker at work: the loop has been run until it was done. Accepts NULL. */
void     pd_pool_free(pd_pool *pool);

/* Gives a buffer of `size` bytes (> 0), aligned to 64, contents undefined, charged to `conn`.
 * PD_UNAVAILABLE: memory is being made; ask again, with `asked` true, after `ready`. PD_NO_MEMORY. */
int      pd_pool_get(pd_pool *pool, size_t size, uint64_t conn, bool asked, pd_buffer **out);
/* Takes the buffer. */
void     pd_pool_put(pd_pool *pool, pd_buffer *buffer);

uint64_t pd_pool_used(const pd_pool *pool);         /* bytes of the buffers that are out, as allocated */
uint64_t pd_pool_kept(const pd_pool *pool);         /* bytes of the unused ones */

#endif
