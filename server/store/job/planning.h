/* planning.h - the first set of parameters of a job, planned in slices of bounded time: job->planning. Step thread. */
#ifndef PD_PLANNING_H
#define PD_PLANNING_H

#include "job.h"

/* Checks the set before anything is made of it, then begins. Subtracts the time that it took from the budget.
 * PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY; after an error call
 * pd_planning_free and pd_param_set_forget. */
int  pd_planning_begin(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err);
/* Goes on for about as long as the budget allows. False: there is more to do. True: the job has its parameters, or *rc
 * says why not; after an error call pd_planning_free and pd_param_set_forget. */
bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Ends the planning. Parameters made so far belong to the job then, as those of a finished set do. Does nothing where
 * none is under way. */
void pd_planning_free(pd_job *job);

#endif
