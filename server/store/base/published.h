/* published.h - published versions of a parameter's weights, with one buffer for each element type that workers pull,
 * and the account of earlier versions that answers still refer to (pd_unread). Step thread.
 *
 * A worker has not read such an answer, or has read it in shared memory and not released it. One earlier version of
 * each parameter is the allowance of a job that trains: it is sent while the next step begins. More than that counts in
 * the job's account, and the job begins no step while its budget is exceeded. So readers that do not read stop their
 * own job alone, until the loop thread closes their connections (write_timeout).
 *
 * Versions of a job that has ended count in the same budgets, without allowance, as soon as the loop thread has
 * forgotten the job. */
#ifndef PD_PUBLISHED_H
#define PD_PUBLISHED_H

#include "budget.h"
#include "buffer_pool.h"
#include "request.h"

typedef struct pd_unread pd_unread;

/* Makes the record of a job, which counts in the job's account. The caller has one reference. NULL: out of memory. */
pd_unread *pd_unread_new(pd_account *account, uint32_t number);
/* Notes that the job has published weights of `now` bytes in place of `before` bytes: what it publishes together is its
 * allowance. */
void pd_unread_publish(pd_unread *unread, uint64_t now, uint64_t before);
/* Counts `bytes` that answers have of weights which were replaced. Adds a reference, which pd_unread_remove drops. */
void pd_unread_add(pd_unread *unread, uint64_t bytes);
/* Counts them no more. */
void pd_unread_remove(pd_unread *unread, uint64_t bytes);
/* Returns the bytes beyond the allowance, if they exceed the budget of the job or of all jobs; 0: the job may begin
 * steps. Accepts NULL. */
uint64_t pd_unread_stops(const pd_unread *unread);

/* Stops counting in the job's account, which is to give its bytes back. Accepts NULL. */
void pd_unread_leave(pd_unread *unread);
/* Counts in the account again. Accepts NULL. */
void pd_unread_return(pd_unread *unread);
/* Notes the bytes of the job's segment of shared memory (buffer_pool.h), which stays as long as an answer has a part
 * of it. They count after the job's end. */
void pd_unread_note_segment(pd_unread *unread, uint64_t bytes);
/* Drops the job's reference: the job, whose owner this is (NULL: none), has ended. Accepts NULL. */
void pd_unread_end(pd_unread *unread, pd_owner *owner);
/* Notes that the loop thread has forgotten the job: only answers refer to its weights. */
void pd_unread_forgotten(pd_unread *unread);
/* Returns the record of a job that has ended; NULL: nobody has its weights. */
pd_unread *pd_unread_find(const pd_budget *all, uint32_t number);

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
