/* worker_states.h - worker states: bytes that workers give to their steps, which they get back when the job goes back
 * to such a step. Step thread. */
#ifndef PD_WORKER_STATES_H
#define PD_WORKER_STATES_H

#include "job.h"

/* Takes a worker's note (PD_REQ_NOTE). It replaces an earlier note of the same step. If the rank has PD_NOTES notes
 * already, the oldest one is dropped that no checkpoint needs. Takes ownership of the request. */
void pd_job_note(pd_job *job, pd_request *request);
/* Answers a worker that asks for its note (PD_REQ_RECALL): the newest one that is not newer than any parameter. Takes
 * ownership of the request. */
void pd_job_recall(pd_job *job, pd_request *request);
/* Returns the rank's newest note that belongs to step `step` or an earlier one; NULL: there is none. */
const pd_note *pd_notes_find(const pd_rank *rank, uint64_t step);
/* Gives the rank a note, whose bytes are copied. PD_RESOURCE_EXHAUSTED: it exceeds max_total_bytes. PD_NO_MEMORY. */
int pd_notes_put(pd_job *job, pd_rank *rank, uint64_t step, const void *at, size_t bytes, pd_error *err);

#endif
