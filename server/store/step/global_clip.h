/* global_clip.h - clipping by the global norm: scales the gradients of a step that all parameters of a job begin
 * together. Step thread.
 *
 * First all of the job's gradients together, where it has a limit (clip_global_norm); then, rule by rule, those of a
 * rule whose row has a limit (pd_row.clip_norm, of the values declared), as the first pass has left them. Parameters
 * without a gradient in this step, and model state (pd_row.takes_values), have no part.
 *
 * Clipping begins when the aggregates of all parameters are there (step_group.h). It goes on in bounded batches, in
 * which no round of the job can move; aggregates are scaled where they lie. Its memory is made at Declare, so it
 * cannot fail. A job that is dropped in the middle of it needs no care. */
#ifndef PD_GLOBAL_CLIP_H
#define PD_GLOBAL_CLIP_H

#include "steps.h"

typedef struct pd_global_clip pd_global_clip;

/* The part that a restart must bring back: store/image. */
typedef struct pd_global_clip_saved {
    double   last;          /* norm of the gradients that were looked at last, before clipping; 0: none yet */
    uint64_t clipped;       /* steps in which some limit was exceeded */
} pd_global_clip_saved;

/* Returns whether the job has a limit, or one of its rules has: then all its parameters step together. */
bool     pd_global_clip_wanted(const pd_steps *steps);
/* Makes steps->clip for a job that clips. PD_NO_MEMORY. pd_param_set_forget frees it. */
int      pd_global_clip_make(pd_steps *steps);
/* Returns the bytes of that for a job with these values and rules. */
uint64_t pd_global_clip_bytes(const pd_job_values *values, const pd_rule *rules, size_t n_rules);

/* Begins: the aggregates of all parameters are there, and outcomes are known. */
void     pd_global_clip_begin(pd_steps *steps);
bool     pd_global_clip_runs(const pd_steps *steps);
/* Works on it for about so long, in ns of one core, and at least a little; *cost_ns: what it took. True: it is over,
 * and the parameters may go on (pd_step_groups_go_on). */
bool     pd_global_clip_run(pd_steps *steps, double budget_ns, double *cost_ns);

/* Returns the norm of the gradients that were looked at last: of all of the job's, or where it has no limit of the
 * first rule's that has one. 0: none yet. */
double   pd_global_clip_last(const pd_steps *steps);
/* Returns in how many steps some limit was exceeded. */
uint64_t pd_global_clip_clipped(const pd_steps *steps);
/* For store/image; NULL: the job does not clip. */
pd_global_clip_saved *pd_global_clip_saved_of(const pd_steps *steps);

#endif
