/* reset_state.h - sets the optimizer state of parameters back to its initial values, in parts of bounded time. Their
 * weights stay. Step thread.
 *
 * A reset is an import (import.h) that brings no tensors. It begins when no step is under way; no step begins until it
 * has ended; and a job with checkpoints begins a checkpoint at once afterwards. Results of preconditioner tasks that no
 * step has used yet are discarded. A reset of one parameter of a step group (step_group.h) resets all parameters of the
 * group, since they have one step count. */
#ifndef PD_RESET_STATE_H
#define PD_RESET_STATE_H

#include "job.h"

typedef struct pd_reset pd_reset;

/* Creates a reset of the parameters whose names match a glob. Their step counts become the job's start_step, unless
 * `keeps_counts`. PD_INVALID_ARGUMENT: the glob is empty, too long or not printable text. PD_RESOURCE_EXHAUSTED,
 * PD_NO_MEMORY. */
int pd_reset_new(pd_reset **out, pd_job *job, const char *glob, bool keeps_counts, pd_error *err);
/* Frees the reset. Accepts NULL. */
void pd_reset_free(pd_job *job, pd_reset *reset);
/* Continues the reset for about `budget_ns` of one core, and returns whether it has ended. *rc becomes PD_OK;
 * PD_NOT_FOUND: no parameter matches; PD_FAILED_PRECONDITION: parameters of a step group are at different steps. After
 * PD_NOT_FOUND or PD_FAILED_PRECONDITION nothing has changed. PD_NO_MEMORY: the reset has not ended, call this function
 * again later. */
bool pd_reset_some(pd_job *job, pd_reset *reset, double budget_ns, int *rc, pd_error *err);
/* Returns the number of parameters that an ended reset has set back. */
uint32_t pd_reset_count(const pd_reset *reset);

#endif
