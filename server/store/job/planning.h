/* planning.h - checks the parameters that the first rank declares, plans their optimizers and allocates their memory,
 * in parts of bounded time. The state between two parts is in job->planning. Step thread. */
#ifndef PD_PLANNING_H
#define PD_PLANNING_H

#include "job.h"
#include "spread.h"

/* Begins to plan the declared parameters. PD_INVALID_ARGUMENT, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY: the caller must
 * call pd_planning_free and pd_param_set_forget. */
int pd_planning_begin(pd_job *job, const pd_request *request, pd_error *err);
/* Checks the declared parameters, and that the ingest budget has room for the job, for about *budget_ns nanoseconds of
 * one core. In a job on several shards, makes the map, and replaces the parameters of the request by the portions of
 * this shard (whole.h). Returns false if there is more to do. When it returns true, *rc is PD_OK or one of the errors
 * of pd_planning_run. */
bool pd_planning_check(pd_job *job, pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Takes the map of a job on several shards, which was read from an image: no other is made. */
void pd_planning_use_map(pd_job *job, pd_map *map);
/* Leaves the optimizers' state without initial values, because the caller will read the state from an image. With
 * `hollow` the state has no memory either (pd_optim_unload). */
void pd_planning_leave_state(pd_job *job, bool hollow);
/* Plans the parameters that are checked, for about *budget_ns nanoseconds of one core. Returns false if there is more
 * to do. When it returns true with *rc PD_OK, job->steps.params has the parameters, but n_params is still 0:
 * pd_planning_finish sets it. PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION, PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY in *rc:
 * the caller must call pd_planning_free and pd_param_set_forget. */
bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err);
/* Makes the planned parameters the job's. After an error the caller must call pd_planning_free and
 * pd_param_set_forget. */
int pd_planning_finish(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err);
/* Ends the planning and frees its memory. The job keeps the parameters that were made so far, even if some are
 * missing. Does nothing if no planning is under way. */
void pd_planning_free(pd_job *job);

#endif
