/* planning.h - plans the first rank's set of parameters, in slices of bounded time: job->planning. Step thread. */
#ifndef PD_PLANNING_H
#define PD_PLANNING_H

#include "job.h"

/* Checks the whole set and begins to plan it. Subtracts the estimated time from *budget_ns. After an error the
 * caller calls pd_planning_free and pd_param_set_forget. PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION,
 * PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int pd_planning_begin(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err);
/* Goes on planning for about *budget_ns nanoseconds of one core. Returns false if there is more to do.
 *
 * When it returns true, *rc is PD_OK and the job has its parameters, or *rc is an error. After an error the caller
 * calls pd_planning_free and pd_param_set_forget. */
bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Ends the planning and frees its memory. Parameters that were made so far stay with the job, even if the set is not
 * finished. Does nothing if no planning is under way. */
void pd_planning_free(pd_job *job);

#endif
