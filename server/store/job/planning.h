/* planning.h - plans the parameters that the first rank declares, in slices of bounded time. The state is in
 * job->planning. Step thread. */
#ifndef PD_PLANNING_H
#define PD_PLANNING_H

#include "job.h"

/* Begins to plan the declared parameters. After an error the caller calls pd_planning_free and
 * pd_param_set_forget. PD_INVALID_ARGUMENT, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int pd_planning_begin(pd_job *job, const pd_request *request, pd_error *err);
/* Checks the declared parameters, and that the ingest budget has room for the job, for about *budget_ns nanoseconds of
 * one core. Returns false if there is more to do. When it returns true, *rc is PD_OK or an error as pd_planning_run has
 * them. */
bool pd_planning_check(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Makes the planning write no initial values into the optimizers' state, since the caller reads all of it from an image
 * before anybody uses it. */
void pd_planning_leave_state(pd_job *job);
/* Plans the parameters that are checked, for about *budget_ns nanoseconds of one core. Returns false if there is more
 * to do. When it returns true, *rc is PD_OK and the parameters are made (job->steps.params), but do not count as the
 * job's yet, or *rc is an error. After an error the caller calls pd_planning_free and pd_param_set_forget.
 * PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Gives the job the parameters that are made. After an error the caller calls pd_planning_free and
 * pd_param_set_forget. */
int pd_planning_finish(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err);
/* Ends the planning and frees its memory. The job keeps the parameters that were made so far, even if some are
 * missing. Does nothing if no planning is under way. */
void pd_planning_free(pd_job *job);

#endif
