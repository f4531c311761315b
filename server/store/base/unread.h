/* unread.h - the bytes of a job's earlier weights, which were replaced while answers to workers still have them.
 * A worker has not read such an answer, or has read it in shared memory and not released it.
 *
 * One earlier version of each parameter is the allowance of a job that trains: it goes out while the next step begins.
 * More than that counts in the job's account, and a job that has more begins no step while its budget is exceeded. So
 * readers that do not read stop their own job alone, until the loop thread closes their connections (write_timeout).
 *
 * What answers still have of a job that has ended counts in the same budgets, without allowance, from the time on when
 * the loop thread has forgotten the job. Step thread. */
#ifndef PD_UNREAD_H
#define PD_UNREAD_H

#include "owners.h"

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
/* Notes the bytes of the job's segment of shared memory (shared_weights.h), which stays as long as an answer has a part
 * of it. They count after the job's end. */
void pd_unread_note_segment(pd_unread *unread, uint64_t bytes);
/* Drops the job's reference: the job, whose owner this is (NULL: none), has ended. Accepts NULL. */
void pd_unread_end(pd_unread *unread, pd_owner *owner);
/* Notes that the loop thread has forgotten the job: nobody but answers has its weights. */
void pd_unread_forgotten(pd_unread *unread);
/* Returns the record of a job that has ended; NULL: nobody has its weights. */
pd_unread *pd_unread_find(const pd_budget *all, uint32_t number);

#endif
