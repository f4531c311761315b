/* worker_states.h - stores worker states: bytes that workers store with their steps, and that they get back when the
 * job goes back to such a step. Step thread. */
#ifndef PD_WORKER_STATES_H
#define PD_WORKER_STATES_H

#include "job.h"

/* Stores the worker state of a PD_REQ_WORKER_STATE in place of an earlier one of the same step, and answers. If the
 * rank has PD_WORKER_STATES of them already, drops the oldest that no checkpoint needs. Takes ownership of the
 * request. */
void pd_worker_states_take(pd_job *job, pd_request *request);
/* Answers a PD_REQ_GET_WORKER_STATE with the rank's newest worker state that is not newer than any parameter's step.
 * Takes ownership of the request. */
void pd_worker_states_answer(pd_job *job, pd_request *request);
/* Returns the rank's newest worker state of step `step` or an earlier one; NULL: there is none. */
const pd_worker_state *pd_worker_states_find(const pd_rank *rank, uint64_t step);
/* Stores a copy of `bytes` bytes at `at` as the rank's worker state of a step. PD_RESOURCE_EXHAUSTED: the budgets have
 * no room. PD_NO_MEMORY. After an error nothing has changed. */
int pd_worker_states_put(pd_job *job, pd_rank *rank, uint64_t step, const void *at, size_t bytes, pd_error *err);

/* Drops the worker states of a rank, whose slot another worker gets. */
void pd_worker_states_forget(pd_job *job, pd_rank *rank);

#endif
