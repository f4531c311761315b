/* override_command.h - handles an operator's command that overrides hyperparameters from a step on. The command is
 * checked as a whole, then applied as a whole. Step thread. */
#ifndef PD_OVERRIDE_COMMAND_H
#define PD_OVERRIDE_COMMAND_H

#include "job.h"

/* Handles a PD_REQ_SET, an operator's command. Handles a short command at once, and a longer one, or one that must wait
 * for earlier commands, in later turns of the job. If the job has checkpoints, the answer waits until the values are
 * durable (pending_sets.h). `job` is the job that the request names; NULL: no job has this name. Takes ownership of the
 * request. */
void pd_job_set(pd_job *job, pd_effects *outbox, bool draining, pd_request *request, uint64_t now_ns);
/* Continues with the waiting commands, for about budget_ns nanoseconds of one core. */
void pd_job_set_some(pd_job *job, double budget_ns, uint64_t now_ns);
/* Returns whether a command has begun to check the values that its parameters would have. Until that command is
 * answered, no step of the job may begin or end. */
bool pd_job_set_holds(const pd_job *job);
/* Refuses all waiting commands with `err`, because the job ends. */
void pd_job_refuse_sets(pd_job *job, const pd_error *err);
/* Repeats, after a restart, a command whose bytes were read from the stream of decisions. Its values apply from the
 * same steps as before. After an error some parameters may have the values. */
int pd_job_set_again(pd_job *job, const uint8_t *bytes, size_t n, pd_error *err);

#endif
