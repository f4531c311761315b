/* worker_states.h - worker states: bytes that workers store with their steps, which they get back when the job goes
 * back to such a step. Step thread. */
#ifndef PD_WORKER_STATES_H
#define PD_WORKER_STATES_H

#include "job.h"

/* Takes a worker state (PD_REQ_WORKER_STATE). It replaces an earlier one of the same step. If the rank has
 * PD_WORKER_STATES of them, the oldest one is dropped that no checkpoint needs. Takes ownership of the request. */
void pd_worker_states_take(pd_job *job, pd_request *request);
/* Answers a PD_REQ_GET_WORKER_STATE: with the rank's newest one that is not newer than any parameter. Takes ownership
 * of the request. */
void pd_worker_states_answer(pd_job *job, pd_request *request);
/* Returns the rank's newest worker state of step `step` or an earlier one; NULL: there is none. */
const pd_worker_state *pd_worker_states_find(const pd_rank *rank, uint64_t step);
/* Gives the rank a worker state, whose bytes are copied. PD_RESOURCE_EXHAUSTED: it exceeds max_total_bytes.
 * PD_NO_MEMORY. */
int pd_worker_states_put(pd_job *job, pd_rank *rank, uint64_t step, const void *at, size_t bytes, pd_error *err);

#endif
