/* override_command.h - handles an operator's command that overrides hyperparameters from a step on. The command is
 * checked as a whole, then applied as a whole. Step thread. */
#ifndef PD_OVERRIDE_COMMAND_H
#define PD_OVERRIDE_COMMAND_H

#include "job.h"

/* Handles and answers a PD_REQ_SET (an operator sets hyperparameters). `job` is the job that it names; NULL: no job
 * has this name. Takes ownership of the request. */
void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request);

#endif
