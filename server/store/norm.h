/* norm.h - clipping by the global norm: what do the gradients of a step become that all parameters of a job begin together? Step thread.
 *
 * First all of the job's together, where it has a limit (clip_global_norm); then, rule by rule, those of a rule whose row has one (pd_row.clip_norm, of the
 * values declared), as the job's has left them. Parameters without a gradient in this step, and such as give values (pd_row.takes_values), have no part.
 *
 * It begins when the rounds of all parameters are gathered (together.c), of which those that step have part, and goes on in bounded batches, in which no round of the
 * job can move; aggregates are scaled where they lie. Its memory is made at Declare: it cannot fail. What a job that is dropped leaves of it
 * needs no care. */
#ifndef PD_NORM_H
#define PD_NORM_H

#include "job.h"

typedef struct pd_global_clip pd_global_clip;

/* It has a limit of its own, or one of its rules has: its parameters step together. */
bool     pd_global_clip_wanted(const pd_job *job);
/* Memory for a job that clips: job->clip. PD_NO_MEMORY. pd_job_forget_set frees it. */
int      pd_global_clip_make(pd_job *job);
/* What that takes of a job with these values and rules. */
uint64_t pd_global_clip_bytes(const pd_job_values *values, const pd_rule *rules, size_t n_rules);

/* All rounds are gathered: outcomes are known. */
void     pd_global_clip_begin(pd_job *job);
bool     pd_global_clip_runs(const pd_job *job);
/* Works on it for about so long, in ns of one core, and at least a little. Gives what it took. When it is over the parameters go on. */
double   pd_global_clip_run(pd_job *job, double budget_ns);

/* Of the gradients that were looked at last, as they came: of all of the job's, or where it has no limit of the first rule's that has. 0: none yet. */
double   pd_global_clip_last(const pd_job *job);
/* Steps in which some limit was exceeded. */
uint64_t pd_global_clip_clipped(const pd_job *job);

#endif
