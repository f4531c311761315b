/* published.h - makes and frees the published versions of a parameter's weights, with one buffer for each element type
 * that workers pull; counts the bytes of unread weights for each job (pd_unread). Step thread.
 *
 * Weights are unread while an answer refers to them after they were replaced: the worker has not read the answer, or
 * has read it in shared memory and not released it. A job that trains has an allowance: one unread version of each
 * parameter is not charged, since it is sent while the next step begins. All further bytes are charged to the job's
 * account, and the job begins no step while a budget is exceeded. So a worker that does not read stops only its own
 * job, until the loop thread closes the worker's connection (write_timeout).
 *
 * After a job has ended, the loop thread forgets it. From then on all its unread weights are charged to the same
 * budgets, without allowance. */
#ifndef PD_PUBLISHED_H
#define PD_PUBLISHED_H

#include "budget.h"
#include "buffer_pool.h"
#include "request.h"

/* Counts the unread weights of one job, until the job has ended and no answer has its weights. */
typedef struct pd_unread pd_unread;

/* Makes the pd_unread of the job with this number. It charges the job's account. The caller has one reference. NULL:
 * out of memory. */
pd_unread *pd_unread_new(pd_account *account, uint32_t number);
/* Changes the allowance: the job has published weights of `now` bytes in place of `before` bytes, and its allowance is
 * the bytes of all weights that are published. */
void pd_unread_publish(pd_unread *unread, uint64_t now, uint64_t before);
/* Counts `bytes` more of unread weights. Adds a reference, which pd_unread_remove drops. */
void pd_unread_add(pd_unread *unread, uint64_t bytes);
/* Counts `bytes` fewer of unread weights. Drops the reference of pd_unread_add. */
void pd_unread_remove(pd_unread *unread, uint64_t bytes);
/* Returns whether unread weights stop the job: if the budget of its owner or of all jobs is exceeded, returns the bytes
 * of the job's unread weights beyond the allowance; otherwise 0: the job may begin steps. Accepts NULL. */
uint64_t pd_unread_stops(const pd_unread *unread);

/* Stops charging the job's account, because the job is about to give all its bytes back. Accepts NULL. */
void pd_unread_leave(pd_unread *unread);
/* Charges the job's account again, after pd_unread_leave. Accepts NULL. */
void pd_unread_return(pd_unread *unread);
/* Stores `bytes`, the size of the job's segment of shared memory (buffer_pool.h), to charge it after the job's end. The
 * segment stays as long as an answer refers to weights in it. */
void pd_unread_note_segment(pd_unread *unread, uint64_t bytes);
/* Drops the job's reference, because the job has ended. `owner` is the job's owner; NULL: it has none. `unread` may be
 * NULL. */
void pd_unread_end(pd_unread *unread, pd_owner *owner);
/* Begins to charge the unread weights of an ended job: the loop thread has forgotten the job, so only answers refer to
 * its weights. */
void pd_unread_forgotten(pd_unread *unread);
/* Returns the pd_unread of the ended job with this number; NULL: no answer has weights of it. */
pd_unread *pd_unread_find(const pd_budget *all, uint32_t number);

/* Returns the bytes that a parameter's published versions and its sum of gradients take besides their elements:
 * structs, pools, and padding at the ends of buffers. */
uint64_t pd_published_own_bytes(void);

/* Creates a published version with undefined content and one reference (store_refs). It gets a buffer from each pool of
 * the array that is not NULL; pool[t] is that of element type t (pd_dtype). NULL: out of memory. */
pd_published *pd_published_new(pd_buffer_pool *const pool[4], int64_t elements);
/* Adds a buffer of another element type to a published version that is not published yet. PD_NO_MEMORY: the published
 * version is unchanged. */
int pd_published_widen(pd_published *published, pd_dtype dtype, pd_buffer_pool *pool);
/* Marks `now` as published in place of `before`. From now on `before` counts as unread, until the loop thread has
 * returned it. Either may be NULL. */
void pd_published_replace(pd_unread *unread, pd_published *now, pd_published *before);
/* Counts a version as unread from now on, although it was never published: weights to evaluate with, which only answers
 * refer to. */
void pd_published_lend(pd_unread *unread, pd_published *published);
/* Drops the loop thread's reference to a published version that it has returned, which is unread no longer. */
void pd_published_returned(pd_published *published);
/* Drops one reference (store_refs) to a published version. When the last one is dropped, the published version is freed
 * and its buffers go back to their pools. Accepts NULL. */
void pd_published_unref(pd_published *published);

#endif
