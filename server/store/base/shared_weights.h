/* shared_weights.h - the segment of shared memory in which a job keeps its weights, so that workers on this machine can
 * read them without a copy through a socket.
 *
 * Step thread. Workers map the segment for reading; only the daemon can write it (segment.h). Memory is handed out once
 * and comes back when the segment ends: buffer pools (buffer_pool.h) recycle it until then. */
#ifndef PD_SHARED_WEIGHTS_H
#define PD_SHARED_WEIGHTS_H

#include "segment.h"

#include <stddef.h>

typedef struct pd_shared_weights pd_shared_weights;

/* Makes a segment for the weights of a job with `elements` elements in `params` parameters. It has room for several
 * versions of the weights in two element types; what nobody writes takes no memory. The caller has one reference.
 * PD_UNAVAILABLE: the system gives no shared memory. PD_NO_MEMORY. */
int pd_shared_weights_new(pd_shared_weights **out, uint64_t elements, uint64_t params, pd_error *err);
void pd_shared_weights_ref(pd_shared_weights *shared);
/* Returns the bytes of pages that the segment would keep if the caller dropped its reference. Accepts NULL. */
uint64_t pd_shared_weights_left(const pd_shared_weights *shared);
/* Drops a reference. The last one unmaps the segment and frees its pages. Accepts NULL. */
void pd_shared_weights_unref(pd_shared_weights *shared);
/* Returns memory for `bytes` bytes, aligned to 64 bytes. NULL: the segment is used up. */
void *pd_shared_weights_take(pd_shared_weights *shared, size_t bytes);
/* Returns the segment; NULL if shared is NULL. */
const pd_segment *pd_shared_weights_segment(const pd_shared_weights *shared);

#endif
