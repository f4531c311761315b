/* override_command.h - handles an operator's command that overrides hyperparameters from a step on: checked as a
 * whole, then applied as a whole. Step thread. */
#ifndef PD_OVERRIDE_COMMAND_H
#define PD_OVERRIDE_COMMAND_H

#include "job.h"

/* Answers a PD_REQ_SET. `job` is the named job; NULL: there is none. Takes the request. */
void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request);

#endif
