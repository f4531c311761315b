/* reset_state.h - sets the optimizer state of parameters back to its initial values, in bounded slices. Their weights
 * stay. Step thread.
 *
 * A reset is an import (import.h) that brings no tensors: it waits for the same moment, at which no step is under way,
 * no step begins until it has ended, and a job with checkpoints begins one at once. Preconditioner tasks whose results
 * no step has used yet are thrown away. If a parameter counts its steps with others (step_group.h), all of these are
 * reset, since they have one count. */
#ifndef PD_RESET_STATE_H
#define PD_RESET_STATE_H

#include "job.h"

typedef struct pd_reset pd_reset;

/* Makes a reset of the parameters whose names match a glob. Their counts of steps become the job's start_step, unless
 * `keeps_counts`. PD_INVALID_ARGUMENT: the glob is empty, too long or no printable text. PD_RESOURCE_EXHAUSTED,
 * PD_NO_MEMORY. */
int pd_reset_new(pd_reset **out, pd_job *job, const char *glob, bool keeps_counts, pd_error *err);
/* Gives the memory back. Accepts NULL. */
void pd_reset_free(pd_job *job, pd_reset *reset);
/* Continues the reset for about `budget_ns` of one core, and returns whether it has ended. *rc becomes PD_OK;
 * PD_NOT_FOUND: no parameter matches; PD_FAILED_PRECONDITION: parameters that count together are at different steps.
 * After these two errors nothing has changed. PD_NO_MEMORY: the reset has not ended, call this function again later. */
bool pd_reset_some(pd_job *job, pd_reset *reset, double budget_ns, int *rc, pd_error *err);
/* Returns the number of parameters that a reset which has ended has set back. */
uint32_t pd_reset_count(const pd_reset *reset);

#endif
