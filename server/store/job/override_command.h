/* override_command.h - an operator's command: overrides of hyperparameters from a step on, checked whole and then
 * taken whole. Step thread. */
#ifndef PD_OVERRIDE_COMMAND_H
#define PD_OVERRIDE_COMMAND_H

#include "job.h"

/* Answers a PD_REQ_SET. `job`: the one that it names; NULL: there is none. Takes the request. */
void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request);

#endif
