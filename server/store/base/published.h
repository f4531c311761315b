/* published.h - published versions: published weights of one parameter, with one buffer for each element type that
 * workers pull. Step thread. */
#ifndef PD_PUBLISHED_H
#define PD_PUBLISHED_H

#include "buffer_pool.h"
#include "unread.h"
#include "request.h"

/* Returns the bytes that a parameter's published versions and its sum of gradients take besides their elements:
 * records, pools, and padding at the ends of buffers. */
uint64_t pd_published_own_bytes(void);

/* Creates a published version with undefined content and one reference (store_refs). It gets a buffer from each pool of
 * the array that is not NULL; pool[t] is that of element type t (pd_dtype). NULL: out of memory. */
pd_published *pd_published_new(pd_buffer_pool *const pool[4], int64_t elements);
/* Adds a buffer of another element type to a published version that is not published yet. PD_NO_MEMORY: the published
 * version is unchanged. */
int pd_published_widen(pd_published *published, pd_dtype dtype, pd_buffer_pool *pool);
/* Notes that `now` is published in place of `before`, which counts as held from now on until the loop thread has
 * returned it. Either may be NULL. */
void pd_published_replace(pd_unread *unread, pd_published *now, pd_published *before);
/* Takes a published version back that the loop thread has returned: drops its reference. */
void pd_published_returned(pd_published *published);
/* Drops one reference (store_refs) to a published version. When the last one is dropped, the published version is freed
 * and its buffers go back to their pools. Accepts NULL. */
void pd_published_unref(pd_published *published);

#endif
