/* pool.h - memory for payloads: where does a frame's payload land?
 *
 * Loop thread. Buffers are recycled by size class: 64 MiB fresh from the kernel cost 30 ms, used again 4. */
#ifndef PD_POOL_H
#define PD_POOL_H

#include "request.h"

typedef struct pd_pool pd_pool;

/* `limit`: unused buffers are kept while those in use and they are at most so many bytes together. NULL: out of memory. */
pd_pool   *pd_pool_new(uint64_t limit);
void       pd_pool_free(pd_pool *pool);             /* all buffers must be back; accepts NULL */

/* Gives a buffer of `size` bytes (> 0), aligned to 64, contents undefined, charged to `conn`. NULL: out of memory. */
pd_buffer *pd_pool_get(pd_pool *pool, size_t size, uint64_t conn);
/* Takes the buffer. */
void       pd_pool_put(pd_pool *pool, pd_buffer *buffer);

uint64_t   pd_pool_used(const pd_pool *pool);       /* bytes of the buffers that are out, as allocated */
uint64_t   pd_pool_kept(const pd_pool *pool);       /* bytes of the unused ones */

#endif
