/* import.h - optimizer state that an operator brings: tensors of a saved file, put into a job whole or not at all.
 * Step thread.
 *
 * Begun, tensors are staged piece by piece beside the job, which goes on; the commit checks that all is there and
 * that the job is at rest, and then writes it in bounded batches, in which no step begins. A second begin, a
 * minute's silence or the job's end drop what is staged. */
#ifndef PD_IMPORT_H
#define PD_IMPORT_H

#include "job.h"

/* Takes a PD_REQ_IMPORT for this job: answers it, or keeps a commit until it is written. */
void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns);

/* A commit is being written: the job takes no steps. */
bool pd_import_writes(const pd_job *job);
/* Writes some more of it, about a batch's work, and answers when it is done; where memory is short, a second later. */
void pd_import_write_some(pd_job *job, uint64_t now_ns);
/* When staged tensors are dropped because nobody goes on (UINT64_MAX: nothing is staged), and does so at that time. */
uint64_t pd_import_expires_ns(const pd_job *job);
void pd_import_tick(pd_job *job, uint64_t now_ns);
/* Drops it; a commit under way is refused with `err`. */
void pd_import_release(pd_job *job, const pd_error *err);

#endif
